// Package losses holds the losses that train retrieval embeddings: one file a
// loss, one registry. A loss is a struct of its parameters and the equation of
// its paper over the scores of a query's positives and negatives; package score
// runs it, and package criterion is a loss at work in a training run.
//
// The symbols are those of the papers: s the scores, P_i and N_i the positives
// and negatives of query i, M queries of which M′ have a positive (the others
// are lone), H the step function, σ the logistic function.
package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/config"
	"roadmap/pkg/registry"
	"roadmap/pkg/torch"
)

// Loss is one loss. Its struct holds its parameters, with their keys in a
// recipe as yaml tags and what they may be as in tags (see [config.Check]). A
// loss with traits has a method Traits() score.Traits.
type Loss interface {
	// Forward returns, without dimensions, the share of a block of queries: the
	// shares of all blocks add up to the loss. It is differentiable with respect
	// to the block's scores.
	Forward(b *score.Block) *torch.Tensor
}

var losses = registry.New[Loss]("loss")

// entry is what the registry knows of a loss beside its constructor.
type entry struct {
	source  string
	options score.Options
}

var entries = map[string]entry{}

// register enters a loss with its paper and equations. construct sets the
// defaults of its parameters; defaults change those of the options.
func register(name, source string, construct func() Loss, defaults ...func(*score.Options)) {
	losses.Register(name, construct)
	o := score.Defaults()
	for _, change := range defaults {
		change(&o)
	}
	entries[name] = entry{source, o}
}

// New returns the loss of that name with its defaults, and the options by which
// it is evaluated unless others are asked for. An unknown name is an error of
// the input.
func New(name string) (Loss, score.Options, error) {
	l, err := losses.Make(name)
	return l, entries[name].options, err
}

// Names lists the losses, sorted.
func Names() []string { return losses.Names() }

// Source is the paper and the equations that define a loss.
func Source(name string) string { return entries[name].source }

// Traits are what l's evaluation must know beside its equation.
func Traits(l Loss) score.Traits {
	if t, ok := l.(interface{ Traits() score.Traits }); ok {
		return t.Traits()
	}
	return score.Traits{}
}

// Evaluate evaluates a loss; see [score.Evaluate]. Parameters and options out
// of their range are errors of the input.
func Evaluate(l Loss, o score.Options, in score.Input) (score.Result, error) {
	for _, parameters := range []any{l, &o} {
		if err := config.Check(parameters); err != nil {
			return score.Result{}, err
		}
	}
	return score.Evaluate(l.Forward, Traits(l), o, in)
}
