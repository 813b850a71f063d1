package eval

import (
	"context"

	"roadmap/pkg/registry"
)

// Protocol is a published way to evaluate, with its own idea of what is query,
// gallery and relevant, or figures of its own. Each registers itself from its
// own file.
type Protocol interface {
	// Takes says what the protocol makes use of.
	Takes() Takes
	// Settings are the protocol's own options, which may be set before Run.
	Settings() []Setting
	// Validate refuses settings that no input could satisfy, as input errors.
	Validate() error
	// Run evaluates.
	Run(ctx context.Context, in Input, o Options) (*ProtocolResult, error)
}

// Takes says which parts of Input and Options a protocol makes use of; the
// others have no influence and are better not given.
type Takes struct {
	Labels  bool // relevance comes from labels, and Options.Ties counts
	Gallery bool // queries and gallery are given apart
	Metrics bool // Options.Metrics and Options.Lone count
}

// Setting is an option of a protocol as the command line has it: a text or a
// whole number, which is its default until it is set.
type Setting struct {
	Name, Usage string
	Text        *string // one of the two
	Number      *int
}

// ProtocolResult is what a protocol found.
type ProtocolResult struct {
	Figures          []Figure // in the order of the protocol's tables
	Queries, Gallery int
	Dim              int
	Repeats          int         // the figures are means over so many evaluations; 0: of one
	Lone             []LoneCount // queries without a relevant item
}

// Figure is one of a protocol's figures.
type Figure struct {
	Name   string
	Value  float64
	Spread *float64 // its sample standard deviation over the repetitions; nil without
}

// LoneCount is how many queries are lone in one of a protocol's setups.
type LoneCount struct {
	Setup   string // "" where there is but one
	Queries int
}

var protocols = registry.New[Protocol]("protocol")

// NewProtocol returns the protocol of a name with its default settings; an
// unknown name is an input error.
func NewProtocol(name string) (Protocol, error) { return protocols.Make(name) }

// ProtocolNames lists the protocols, sorted.
func ProtocolNames() []string { return protocols.Names() }
