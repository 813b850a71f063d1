package main

import (
	"bytes"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"roadmap/losses"
	"roadmap/losses/criterion"
	"roadmap/losses/score"
	"roadmap/pkg/config"
	"roadmap/pkg/torch"
)

// curve is a function of t, the score of the only negative less that of the
// only positive.
type curve struct {
	label string
	loss  string
	set   []string
	color color.Color
	of    func(value, gradient float64) float64
}

var (
	black  = color.RGBA{0x22, 0x22, 0x22, 0xff}
	blue   = color.RGBA{0x1f, 0x77, 0xb4, 0xff}
	red    = color.RGBA{0xd6, 0x27, 0x28, 0xff}
	pink   = color.RGBA{0xff, 0x98, 0x96, 0xff}
	green  = color.RGBA{0x2c, 0xa0, 0x2c, 0xff}
	purple = color.RGBA{0x94, 0x67, 0xbd, 0xff}
	brown  = color.RGBA{0x8c, 0x56, 0x4b, 0xff}
)

// figures draws what the losses do to one pair, by evaluating them.
func figures() (map[string][]byte, error) {
	// With one positive rank⁺ is 1, and L = 1 − 1/(1 + H⁻): H⁻ = L/(1 − L).
	step := func(value, _ float64) float64 { return value / (1 - value) }
	slope := func(_, gradient float64) float64 { return gradient }
	surrogates, err := figure("Functions for the step in rank−", "s_j − s_k", "H−", -0.1, 0.1, 0, 7, []curve{
		{"H (ap; H+ of supap)", "ap", nil, black, step},
		{"σ (smoothap)", "smoothap", nil, blue, step},
		{"H− (supap)", "supap", nil, red, step},
		{"H− (supap, released)", "supap", []string{"variant=released"}, pink, step},
	})
	if err != nil {
		return nil, err
	}
	gradients, err := figure("Gradient of the loss by the score of the negative", "s_j − s_k", "∂L/∂s_j", -0.2, 0.4, 0, 18, []curve{
		{"smoothap", "smoothap", nil, blue, slope},
		{"supap", "supap", nil, red, slope},
		{"supap, released", "supap", []string{"variant=released"}, pink, slope},
		{"recallk (k = 1)", "recallk", []string{"k=[1]"}, brown, slope},
		{"fastap", "fastap", nil, green, slope},
		{"triplet", "triplet", nil, purple, slope},
	})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"docs/losses/surrogates.svg": surrogates, "docs/losses/gradients.svg": gradients}, nil
}

func figure(title, x, y string, from, to, low, high float64, curves []curve) ([]byte, error) {
	p := plot.New()
	p.Title.Padding = vg.Points(6)
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = from, to, low, high
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for _, c := range curves {
		points, err := c.sample(from, to)
		if err != nil {
			return nil, fmt.Errorf("figure %q, %s: %w", title, c.label, err)
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = c.color, vg.Points(1.4)
		p.Add(line)
		p.Legend.Add(c.label, line)
	}
	canvas := vgsvg.New(16*vg.Centimeter, 9*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var svg bytes.Buffer
	_, err := canvas.WriteTo(&svg)
	return svg.Bytes(), err
}

// sample evaluates the loss on one positive at 0.3 and one negative beside it.
func (c curve) sample(from, to float64) (plotter.XYs, error) {
	section, err := config.Assign(c.loss, c.set...)
	if err != nil {
		return nil, err
	}
	l, err := config.Build(criterion.Registry, section)
	if err != nil {
		return nil, err
	}
	const n, positive = 601, 0.3
	points := make(plotter.XYs, n)
	for i := range points {
		t := from + (to-from)*float64(i)/(n-1)
		value, gradient, err := onePair(l, positive, positive+t)
		if err != nil {
			return nil, err
		}
		points[i] = plotter.XY{X: t, Y: c.of(value, gradient)}
	}
	return points, nil
}

// onePair is a loss on two scores and its derivative by the negative's.
func onePair(l *criterion.Config, positive, negative float64) (value, gradient float64, err error) {
	s := torch.NewScope()
	defer s.Close()
	scores := torch.From(s, []float64{positive, negative}, 1, 2).RequireGrad(true)
	r, err := l.Evaluate(score.Input{Scores: scores, Relevance: torch.From(s, []bool{true, false}, 1, 2)})
	if err != nil {
		return 0, 0, err
	}
	if value, err = r.Value.Item(); err != nil || losses.Traits(l.Loss).Metric {
		return value, 0, err
	}
	if err := r.Value.Backward(); err != nil {
		return 0, 0, err
	}
	gradient, err = scores.Grad(s).Select(1, 1).Item()
	return value, gradient, err
}
