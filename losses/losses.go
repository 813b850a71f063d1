// Package losses holds the losses that train retrieval embeddings: one file a
// loss, one registry. A loss is a struct that is its own section of a recipe;
// New makes one by name and Forward evaluates it.
//
// Every loss is a function of scores, the cosine similarities of q queries and
// g gallery entries. Forward normalises the embeddings, computes the scores
// tile by tile, hands each tile to the loss in blocks of queries, and turns
// the gradients with respect to the scores into gradients with respect to the
// embeddings at once. Neither a tensor of g³ elements nor, past the memory
// budget, the whole score matrix ever exists, and Backward has nothing left to
// compute but one multiplication.
//
// The symbols are those of the papers: S the scores, P_i and N_i the positives
// and negatives of query i, M queries of which M′ have a positive (the others
// are lone), H the step function, σ the logistic function.
package losses

import (
	"roadmap/pkg/registry"
	"roadmap/pkg/torch"
)

// Loss is one loss. Its struct holds its parameters and embeds Common.
type Loss interface {
	// Shared returns the keys that every loss has.
	Shared() *Common
	// Validate refuses parameters out of their range with errors of the input.
	Validate() error
	// Forward returns, without dimensions, the share of a block of queries:
	// the shares of all blocks add up to the loss. It is differentiable with
	// respect to b.Scores.
	Forward(b *Block) *torch.Tensor
}

// Counter is a Loss with denominators that only the scores tell, such as the
// number of pairs that violate a margin. Forward comes after a pass that adds
// the totals of all blocks up into b.Totals.
type Counter interface {
	// Counts is the number of totals that the loss needs as it is configured.
	Counts() int
	// Totals returns a block's counts, [Counts()]. They have no gradient.
	Totals(b *Block) *torch.Tensor
}

// Registry holds every loss by its name in recipes and on the command line.
var Registry = registry.New[Loss]("loss")

var sources = map[string]string{}

func register(name, source string, construct func() Loss) {
	Registry.Register(name, construct)
	sources[name] = source
}

// Source is the paper and the equations that define a loss.
func Source(name string) string { return sources[name] }

// New returns the loss of that name with its defaults. An unknown name is an
// error of the input.
func New(name string) (Loss, error) { return Registry.Make(name) }

// metric marks a Loss without gradient.
type metric interface{ noGradient() }

// Trainable says whether l has a gradient; a metric has none.
func Trainable(l Loss) bool {
	_, none := l.(metric)
	return !none
}

// Names lists the losses, sorted.
func Names() []string { return Registry.Names() }
