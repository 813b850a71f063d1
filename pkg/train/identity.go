package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"roadmap/pkg/config"
	"roadmap/pkg/data"
	"roadmap/pkg/fault"
)

// identity is what makes a run the one it is. Every checkpoint has it, so that
// a run goes on as it was, or says what is different.
type identity struct {
	Recipe []config.Pair               `json:"recipe"` // but for train and eval
	Data   map[string]data.Fingerprint `json:"data"`   // by split
}

// change is something of a run that is no longer as it was.
type change struct{ key, was, is string }

func (c change) String() string { return fmt.Sprintf("%s is %s; it was %s", c.key, c.is, c.was) }

// changes lists what is different now.
func (i *identity) changes(now *identity) []change {
	return slices.Concat(changedKeys(i.Recipe, now.Recipe), changedData(i.Data, now.Data))
}

// changedKeys compares two recipes key by key.
func changedKeys(before, now []config.Pair) (list []change) {
	value := func(of []config.Pair, key string) string {
		if i := slices.IndexFunc(of, func(p config.Pair) bool { return p.Key == key }); i >= 0 {
			return of[i].Value
		}
		return "not there"
	}
	for _, p := range now {
		if was := value(before, p.Key); was != p.Value {
			list = append(list, change{p.Key, was, p.Value})
		}
	}
	for _, p := range before {
		if is := value(now, p.Key); is == "not there" {
			list = append(list, change{p.Key, p.Value, is})
		}
	}
	return list
}

func changedData(before, now map[string]data.Fingerprint) (list []change) {
	for _, split := range []string{data.Train, data.Test} {
		was, is := before[split], now[split]
		what := "the data of split " + split
		switch {
		case was == is:
		case was.Images != is.Images || was.Classes != is.Classes:
			list = append(list, change{what, fmt.Sprintf("%d images of %d classes", was.Images, was.Classes), fmt.Sprintf("%d images of %d classes", is.Images, is.Classes)})
		case was.Names != is.Names:
			list = append(list, change{what, "as many images with other names", "with these"})
		case was.Labels != is.Labels:
			list = append(list, change{what, "the same images in other classes", "in these"})
		default:
			list = append(list, change{what, "the same names with files of other sizes", "with these"})
		}
	}
	return list
}

// mayChange says whether a run stays the same one with another value of a key:
// neither its images nor what it is made of change.
func mayChange(key string) bool {
	return strings.HasPrefix(key, "train.") || strings.HasPrefix(key, "eval.") || key == "optimizer.lr"
}

// parts is the recipe as far as it belongs to the identity.
func (r *Recipe) parts() ([]config.Pair, error) {
	pairs, err := config.Pairs(r)
	return slices.DeleteFunc(pairs, func(p config.Pair) bool {
		return strings.HasPrefix(p.Key, "train.") || strings.HasPrefix(p.Key, "eval.")
	}), err
}

// identity is what the run is now.
func (r *Run) identity() (*identity, error) {
	parts, err := r.recipe.parts()
	if err != nil {
		return nil, err
	}
	return &identity{parts, r.data}, nil
}

// text is the identity as a checkpoint has it.
func (i *identity) text() (string, error) {
	text, err := json.Marshal(i)
	return string(text), err
}

func parseIdentity(text string) (*identity, error) {
	i := &identity{}
	if text == "" {
		return nil, errors.New("it does not say of which recipe and data it is")
	}
	return i, json.Unmarshal([]byte(text), i)
}

// refuse is the error of a run that would go on as another one; nil where all
// that changed may change.
func refuse(folder string, step int, list []change) error {
	var texts []string
	for _, c := range list {
		if !mayChange(c.key) {
			texts = append(texts, c.String())
		}
	}
	if len(texts) == 0 {
		return nil
	}
	const most = 8
	if n := len(texts); n > most {
		texts = append(texts[:most], fmt.Sprintf("and %d more", n-most))
	}
	return fault.Inputf("run folder %s: the run was another one up to step %d: %s; put it back as it was, or go on all the same with --accept-changes (train.*, eval.* and optimizer.lr may change without)",
		folder, step, strings.Join(texts, ", "))
}
