package data

import (
	"crypto/sha256"
	"encoding/hex"
	"image"
	"math"
	"slices"
	"sync"
	"testing"
	"unicode"

	"golang.org/x/image/font/sfnt"

	"roadmap/pkg/fault/faulttest"
)

func glyphs(t *testing.T) *Glyphs {
	t.Helper()
	c, err := New("glyphs")
	if err != nil {
		t.Fatal(err)
	}
	return c.(*Glyphs)
}

func TestGlyphsCounts(t *testing.T) {
	g := glyphs(t)
	checkSplits(t, g)
	cases := []struct {
		split   string
		classes int // every third of each category tests
	}{{All, 425}, {Test, 138}, {Train, 287}}
	for _, c := range cases {
		want := Stats{Name: "glyphs", Split: c.split, Images: c.classes * 10 * 2, Classes: c.classes, Categories: 9, Min: 20, Median: 20, Max: 20}
		if s := open(t, g, c.split).Stats(); s != want {
			t.Errorf("%v, want %v", s, want)
		}
	}
}

// Every character is what its category says, once, has a glyph with ink in
// every face, and no two look alike: the intersection of their ink is below
// 90 % of the union in each face.
func TestGlyphsAlphabets(t *testing.T) {
	kinds := map[string]func(rune) bool{
		"Latin upper": func(r rune) bool { return unicode.Is(unicode.Latin, r) && unicode.IsUpper(r) },
		"Latin lower": func(r rune) bool { return unicode.Is(unicode.Latin, r) && unicode.IsLower(r) },
		"Greek":       func(r rune) bool { return unicode.Is(unicode.Greek, r) && unicode.IsLetter(r) },
		"Cyrillic":    func(r rune) bool { return unicode.Is(unicode.Cyrillic, r) },
		"number":      unicode.IsNumber,
		"punctuation": unicode.IsPunct,
		"currency":    func(r rune) bool { return unicode.Is(unicode.Sc, r) },
		"mathematics": func(r rune) bool { return unicode.Is(unicode.Sm, r) },
		"symbol":      func(r rune) bool { return unicode.Is(unicode.So, r) },
	}
	type drawing struct {
		character rune
		ink       []*image.Alpha // by face
		sum       []int          // of the ink
	}
	var all []drawing
	for _, a := range alphabets {
		for _, r := range a.characters {
			if !kinds[a.category](r) {
				t.Errorf("%U %c is no %s", r, r, a.category)
			}
			d := drawing{character: r}
			for f := range faces() {
				d.ink = append(d.ink, upright(t, f, r))
				d.sum = append(d.sum, sum(d.ink[f]))
			}
			all = append(all, d)
		}
	}
	for i, a := range all {
		for f := range faces() {
			if a.sum[f] < 255*8 {
				t.Errorf("%U %c has no ink in face %s", a.character, a.character, faces()[f].name)
			}
		}
		for _, b := range all[:i] {
			for f := range faces() {
				if low, high := min(a.sum[f], b.sum[f]), max(a.sum[f], b.sum[f]); 10*low < 9*high {
					continue // too different in amount to share as much
				}
				if s := overlap(a.ink[f], b.ink[f]); s >= 0.9 {
					t.Errorf("%U %c and %U %c share %.0f %% of their ink in face %s", a.character, a.character, b.character, b.character, 100*s, faces()[f].name)
				}
			}
		}
	}
}

// Two characters that the test above must be able to tell are too alike: it
// would be no test if these passed.
func TestGlyphsLookAlikes(t *testing.T) {
	for _, pair := range [][2]rune{{'A', 'А'}, {'o', 'ο'}, {'Ω', 'Ω'}} {
		for f := range faces() {
			if s := overlap(upright(t, f, pair[0]), upright(t, f, pair[1])); s < 0.9 {
				t.Errorf("%U and %U share %.0f %% of their ink in face %s", pair[0], pair[1], 100*s, faces()[f].name)
			}
		}
	}
}

// upright draws a character at 48 pixels without jitter.
func upright(t *testing.T, face int, character rune) *image.Alpha {
	t.Helper()
	g := glyph{&Glyphs{Side: 48, Sizes: []float64{0.75}}, character, face, 0, 0}
	ink, err := g.draw(pen{wide: 1, tall: 1})
	if err != nil {
		t.Fatal(err)
	}
	return ink
}

func sum(ink *image.Alpha) int {
	total := 0
	for _, p := range ink.Pix {
		total += int(p)
	}
	return total
}

// overlap is the intersection of two drawings' ink over its union.
func overlap(a, b *image.Alpha) float64 {
	both, either := 0, 0
	for i := range a.Pix {
		both += int(min(a.Pix[i], b.Pix[i]))
		either += int(max(a.Pix[i], b.Pix[i]))
	}
	return float64(both) / float64(either)
}

// An upright bar is a rectangle: its area and its middle can be read off the
// font.
func TestGlyphsDrawingByHand(t *testing.T) {
	var buffer sfnt.Buffer
	segments, _, err := outline(&buffer, faces()[0].font, '|')
	if err != nil {
		t.Fatal(err)
	}
	box := segments.Bounds()
	const em = 0.75 * 48.0 / emUnits // pixels a unit of the outline
	width, height := em*float64(box.Max.X-box.Min.X), em*float64(box.Max.Y-box.Min.Y)
	ink := upright(t, 0, '|')
	if got, want := float64(sum(ink))/255, width*height; math.Abs(got-want) > 0.02*want {
		t.Errorf("%.2f pixels of ink, want %.2f × %.2f = %.2f", got, width, height, want)
	}
	var x, y float64
	for i, p := range ink.Pix {
		x += float64(p) * (float64(i%48) + 0.5)
		y += float64(p) * (float64(i/48) + 0.5)
	}
	x, y = x/float64(sum(ink)), y/float64(sum(ink))
	// In the middle from left to right, on a baseline that is a third of an em,
	// 12 pixels, below the middle.
	baseline := 24 + 12.0
	if want := baseline + em*float64(box.Min.Y+box.Max.Y)/2; math.Abs(x-24) > 0.3 || math.Abs(y-want) > 0.1 {
		t.Errorf("the ink's middle is (%.2f, %.2f), want (24, %.2f)", x, y, want)
	}
}

// The dataset is part of what a recipe means: these images must not change. If
// the fonts or the rasteriser change, that has to be known.
func TestGlyphsAreFixed(t *testing.T) {
	h := sha256.New()
	d := open(t, glyphs(t), All)
	for i := 0; i < d.Len(); i += 7 {
		h.Write(drawn(t, d, i))
	}
	const want = "8c78059aed5744c52c0ad801e57a49855a4468f8b971570257e9b59d46ec5d98"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("the images' SHA-256 is %s, want %s", got, want)
	}
}

// Neither order nor company nor a split matters to an image; seed, copy, size
// and face do.
func TestGlyphsAreIndependent(t *testing.T) {
	g := glyphs(t)
	g.Copies = 2
	d := open(t, g, All)
	const n = 200
	alone := make([][]byte, n)
	for i := range n {
		alone[i] = drawn(t, d, i)
	}
	again := make([][]byte, n)
	var wait sync.WaitGroup
	for i := n - 1; i >= 0; i-- {
		wait.Go(func() { again[i] = drawn(t, d, i) })
	}
	wait.Wait()
	for i := range n {
		if !slices.Equal(alone[i], again[i]) {
			t.Fatalf("%s depends on the order of access", d.Items[i].Path)
		}
		for j := range i {
			if slices.Equal(alone[i], alone[j]) {
				t.Errorf("%s and %s are the same", d.Items[i].Path, d.Items[j].Path)
			}
		}
	}
	test := open(t, g, Test)
	if i := test.Items[0].ID; !slices.Equal(drawn(t, d, i), drawn(t, test, 0)) {
		t.Errorf("%s differs between splits", test.Items[0].Path)
	}
	g.Seed++
	other := open(t, g, All)
	if slices.Equal(drawn(t, other, 0), alone[0]) {
		t.Error("the seed has no influence")
	}
	if !slices.Equal(drawn(t, d, 0), alone[0]) {
		t.Error("a change of the settings reaches a dataset opened before")
	}
}

func TestGlyphsWithoutJitterAreClean(t *testing.T) {
	g := &Glyphs{Side: 28, Sizes: []float64{0.7}, Copies: 2}
	d := open(t, g, All)
	a, b := drawn(t, d, 0), drawn(t, d, 1)
	if !slices.Equal(a, b) {
		t.Error("two copies without jitter differ")
	}
	if a[0] != 0 || slices.Max(a) != 255 {
		t.Errorf("ground %d and ink up to %d, want 0 and 255", a[0], slices.Max(a))
	}
}

// At the default jitter a character stays on the image: less than a tenth of
// the ink is lost at the border for 99 % of the images.
func TestGlyphsStayOnTheImage(t *testing.T) {
	g := glyphs(t)
	d := open(t, g, All)
	small, lost := 0, 0
	for i := 0; i < d.Len(); i += 3 {
		s := d.Items[i].Source.(glyph)
		near, err := s.draw(s.pen())
		if err != nil {
			t.Fatal(err)
		}
		// The same on an image twice as large, so that nothing is cut off.
		wide := *g
		wide.Side, wide.Sizes = 2*g.Side, []float64{g.Sizes[0] / 2, g.Sizes[1] / 2}
		p := s.pen()
		p.right, p.down = p.right/2, p.down/2
		s.settings = &wide
		whole, err := s.draw(p)
		if err != nil {
			t.Fatal(err)
		}
		small++
		if float64(sum(near)) < 0.9*float64(sum(whole)) {
			lost++
		}
	}
	if lost*100 > small {
		t.Errorf("%d of %d images lose more than a tenth of their ink", lost, small)
	}
}

func TestGlyphsRefusals(t *testing.T) {
	good := Glyphs{Side: 28, Sizes: []float64{0.7}, Copies: 1}
	cases := []struct {
		name   string
		change func(*Glyphs)
		says   string
	}{
		{"side", func(g *Glyphs) { g.Side = 4 }, "side is 4"},
		{"no sizes", func(g *Glyphs) { g.Sizes = nil }, "sizes is empty"},
		{"size", func(g *Glyphs) { g.Sizes = []float64{0.5, 3} }, "sizes has 3"},
		{"copies", func(g *Glyphs) { g.Copies = 0 }, "copies is 0"},
		{"jitter", func(g *Glyphs) { g.Jitter = math.NaN() }, "jitter is NaN"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := good
			c.change(&g)
			_, err := g.Open(All)
			faulttest.Refused(t, err, c.says)
		})
	}
}

func drawn(t *testing.T, d *Dataset, row int) []byte {
	t.Helper()
	img, err := d.Items[row].Image()
	if err != nil {
		t.Error(err)
		return nil
	}
	return img.(*image.Gray).Pix
}
