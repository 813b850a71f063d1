package data

import (
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gobolditalic"
	"golang.org/x/image/font/gofont/goitalic"
	"golang.org/x/image/font/gofont/gomedium"
	"golang.org/x/image/font/gofont/gomediumitalic"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/gofont/gomonobolditalic"
	"golang.org/x/image/font/gofont/gomonoitalic"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"

	"roadmap/pkg/config"
	"roadmap/pkg/rng"
)

func init() {
	register("glyphs", func() Collection {
		return &Glyphs{Side: 28, Sizes: []float64{0.68, 0.8}, Copies: 1, Jitter: 1}
	})
}

// Glyphs is characters of the Go fonts, drawn when they are asked for: real
// images without a file, for demonstrations and tests. A class is a character,
// the category its script or kind; an image is one face, one size and one
// jitter, grey, light ink on dark ground. Within each category every third
// class tests and the others train.
//
// The jitter turns, scales, slants and shifts the character, bends its
// strokes, and varies contrast and noise, so that pixels alone say little
// about the class. An image is a function of the settings and its own
// character, face, size and copy, in integers from the outline on: equal bit
// for bit wherever and in whatever order it is drawn.
type Glyphs struct {
	Side   int       `yaml:"side"`   // pixels of the square image
	Sizes  []float64 `yaml:"sizes"`  // heights of the em square, shares of the side
	Copies int       `yaml:"copies"` // images of each face and size, by different jitter
	Jitter float64   `yaml:"jitter"` // strength: 0 draws every character upright and clean
	Seed   uint64    `yaml:"seed"`   // of the jitter
}

// alphabets is the characters by category. Every one has its own glyph in all
// the faces, and no two of them look alike: their drawings at 48 pixels share
// less than 90 % of their ink in each face. Many accented letters, and the
// Greek and Cyrillic ones that are drawn like Latin ones, fail that.
var alphabets = []struct{ category, characters string }{
	{"Latin upper", "ABCDEFGHIJKLMNOPQRSTUVWXYZÂÆÇÊÌÍÎÏÑÔØÛÞĀĈČĎĜĞĤĨĮĲĴĻĽŁŊŎŒŘŜŠŢŤŬŮŶŽǍǏǕǺ"},
	{"Latin lower", "abcdefghijklmnopqrstuvwxyzßâãåæçêîïðñôõøûþÿćĉčďēęěĝğĥĩīĭįıĳĵĸĺļľłņŉŋœŕŗřśŝşšţťũůųŵźſƒǒǖǘǜǻﬁﬂ"},
	{"Greek", "ΈΉΊΌΎΏΐΓΔΞΠΣΥΦΨΩΫάέήίΰβγδεζθιλμνξπρςστυφχψωϊϋόύ"},
	{"Cyrillic", "ЂЃЄЉЊЋЌЍЎЏБДЖЗЛУЦЧШЪЫЬЭЮЯбвгджзийклмнптуфцчшщъыьэюяђѓєљњћўџҐґ"},
	{"number", "0123456789¼½¾⅛⅜⅝⅞"},
	{"punctuation", "!\"#%&'()*,-./:;?@[\\]_{}¡§«¶·»¿—‗‘’‛“”„†‡•…‰′″‹›‼‾⁽⁾₍₎"},
	{"currency", "$¢£¤¥₣₤₧€"},
	{"mathematics", "+<=>|~¬±×÷⁄⁺⁻⁼₊₋₌←↑→↓↔∂∏∑∙√∞∟∩∪∫≈≠≡≤≥⌠⌡"},
	{"symbol", "¦©®°℅№™℮↕↨⌂⌐■□▪▫▬▲►▼◄◊○●◘◙◦☺☻☼♀♂♠♣♥♦♪♫"},
}

// face is one of the Go fonts. The two with small capitals are no use: their
// small letters look like the capitals of other classes.
type face struct {
	name string
	font *sfnt.Font
}

// faces parses the fonts, once.
var faces = sync.OnceValue(func() []face {
	files := []struct {
		name string
		ttf  []byte
	}{
		{"regular", goregular.TTF}, {"italic", goitalic.TTF},
		{"medium", gomedium.TTF}, {"mediumitalic", gomediumitalic.TTF},
		{"bold", gobold.TTF}, {"bolditalic", gobolditalic.TTF},
		{"mono", gomono.TTF}, {"monoitalic", gomonoitalic.TTF},
		{"monobold", gomonobold.TTF}, {"monobolditalic", gomonobolditalic.TTF},
	}
	fonts := make([]face, len(files))
	for i, f := range files {
		parsed, err := sfnt.Parse(f.ttf)
		if err != nil {
			panic(fmt.Sprintf("glyphs: the embedded font %s: %v", f.name, err))
		}
		fonts[i] = face{f.name, parsed}
	}
	return fonts
})

// Validate checks the settings.
func (g *Glyphs) Validate() error {
	switch {
	case g.Side < 8 || g.Side > 512:
		return config.Invalid("side", "is %d; give 8 to 512 pixels", g.Side)
	case len(g.Sizes) == 0:
		return config.Invalid("sizes", "is empty; give at least one height, such as [0.7]")
	case g.Copies < 1:
		return config.Invalid("copies", "is %d; give at least 1", g.Copies)
	case g.bytes() > mostGlyphBytes:
		return config.Invalid("copies", "is %d: of %d sizes they would take %d bytes to list, without one pixel; at most %d are taken, so give %d or less",
			g.Copies, len(g.Sizes), g.bytes(), int64(mostGlyphBytes), g.Copies*int(mostGlyphBytes>>20)/max(int(g.bytes()>>20), 1))
	case !(g.Jitter >= 0 && g.Jitter <= 4):
		return config.Invalid("jitter", "is %g; give 0 (none) to 4", g.Jitter)
	}
	for _, size := range g.Sizes {
		if !(size >= 0.1 && size <= 2) {
			return config.Invalid("sizes", "has %g; give shares of the side between 0.1 and 2", size)
		}
	}
	return nil
}

// itemBytes is what one image takes in a dataset that is open: its Item, twice
// as splits are cut from the whole, and the text of its path.
const itemBytes = 512

// mostGlyphBytes bounds that for all images: 4 GiB, 8 million images.
const mostGlyphBytes = 4 << 30

// bytes is what the images take before one is drawn.
func (g *Glyphs) bytes() int64 {
	characters := 0
	for _, a := range alphabets {
		characters += utf8.RuneCountInString(a.characters)
	}
	return times(int64(characters), int64(len(faces())), int64(len(g.Sizes)), int64(g.Copies), itemBytes)
}

// Splits implements Collection.
func (*Glyphs) Splits() []string { return []string{Train, Test} }

// Open implements Collection. No image is drawn yet.
func (g *Glyphs) Open(split string) (*Dataset, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if err := checkSplit("glyphs", split, g.Splits()); err != nil {
		return nil, err
	}
	settings := *g
	settings.Sizes = slices.Clone(g.Sizes)
	var all []placed
	for _, a := range alphabets {
		for i, character := range []rune(a.characters) {
			part := Train
			if i%3 == 2 {
				part = Test
			}
			for _, it := range settings.class(character, a.category) {
				it.ID = len(all)
				all = append(all, placed{it, part})
			}
		}
	}
	return finish("glyphs", split, all, Fail)
}

// class lists the images of one character.
func (g *Glyphs) class(character rune, category string) []Item {
	var items []Item
	name := fmt.Sprintf("U+%04X %c", character, character)
	for f, face := range faces() {
		for s, size := range g.Sizes {
			for c := range g.Copies {
				items = append(items, Item{
					Path:     fmt.Sprintf("glyphs:U+%04X/%s/%g/%d", character, face.name, size, c),
					Class:    name,
					Category: category,
					Source:   glyph{g, character, f, s, c},
				})
			}
		}
	}
	return items
}

// glyph is one image: a character in a face (by index), a size (by index) and
// a copy.
type glyph struct {
	settings         *Glyphs
	character        rune
	face, size, copy int
}

// What of an image is drawn by chance, each from its own stream.
const (
	streamPen = iota + 1
	streamPaper
)

func (g glyph) random(stream uint64) *rand.Rand {
	return rng.New(g.settings.Seed, stream, uint64(g.character), uint64(g.face), uint64(g.size), uint64(g.copy))
}

// Image implements Source: a *image.Gray of Side × Side pixels.
func (g glyph) Image() (image.Image, error) {
	ink, err := g.draw(g.pen())
	if err != nil {
		return nil, err
	}
	return g.print(ink), nil
}

// print puts the ink on paper: ground 0 to 80, ink 160 to 255, and noise with
// a triangular distribution within ±48, each at jitter 1.
func (g glyph) print(ink *image.Alpha) *image.Gray {
	jitter, random := g.settings.Jitter, g.random(streamPaper)
	ground := int(80 * jitter * random.Float64())
	light := 255 - int(95*jitter*random.Float64())
	noise := int(24 * jitter)
	grey := image.NewGray(ink.Rect)
	for i, share := range ink.Pix {
		v := ground + (light-ground)*int(share)/255
		if noise > 0 {
			v += random.IntN(2*noise+1) + random.IntN(2*noise+1) - 2*noise
		}
		grey.Pix[i] = uint8(min(max(v, 0), 255))
	}
	return grey
}

// pen is how a character is drawn, all zero but wide and tall for upright.
type pen struct {
	turn, slant float64    // radians; horizontal shift per height
	wide, tall  float64    // scales
	right, down float64    // shares of the side
	bend, phase [2]float64 // waves along y and x that bend strokes: height in em, phase in periods
}

// pen draws by chance how this image's character is drawn.
func (g glyph) pen() pen {
	random := g.random(streamPen)
	// A number in [-1, 1] times the strength of the jitter.
	jitter := func() float64 { return (2*random.Float64() - 1) * g.settings.Jitter }
	return pen{
		turn:  jitter() * 0.30, // radians: 17°
		slant: jitter() * 0.25,
		wide:  1 + jitter()*0.15,
		tall:  1 + jitter()*0.15,
		right: jitter() * 0.10,
		down:  jitter() * 0.10,
		bend:  [2]float64{jitter() * 0.05, jitter() * 0.05},
		phase: [2]float64{random.Float64(), random.Float64()},
	}
}

// emUnits is the size at which outlines are loaded: 1024 pixels an em, in 64ths.
const emUnits = 1024 * 64

// draw fills the outline, moved by the pen, and returns the share of ink of
// every pixel.
func (g glyph) draw(p pen) (*image.Alpha, error) {
	var buffer sfnt.Buffer
	font := faces()[g.face].font
	segments, advance, err := outline(&buffer, font, g.character)
	if err != nil {
		return nil, fmt.Errorf("%s, face %s: %w", string(g.character), faces()[g.face].name, err)
	}
	side := float64(g.settings.Side)
	em := g.settings.Sizes[g.size] * side
	sin, cos := math.Sincos(p.turn)
	// The middle of the em square, a third of an em above the baseline, comes
	// to the middle of the image.
	move := func(at fixed.Point26_6) (x, y float32) {
		u := (float64(at.X) - float64(advance)/2) / emUnits
		v := float64(at.Y)/emUnits + 1.0/3
		u, v = u+p.bend[0]*math.Sin(2*math.Pi*(v+p.phase[0])), v+p.bend[1]*math.Sin(2*math.Pi*(u+p.phase[1]))
		u, v = p.wide*(u-p.slant*v), p.tall*v
		return snap(side/2 + side*p.right + em*(cos*u-sin*v)), snap(side/2 + side*p.down + em*(sin*u+cos*v))
	}
	return fill(segments, g.settings.Side, move), nil
}

// snap rounds a coordinate to 1/256 pixel, so that the last bits of sines and
// products, which differ between processors, do not matter.
func snap(x float64) float32 { return float32(math.Round(x*256) / 256) }

// outline loads a character's segments and its advance in 64ths of a pixel at
// 1024 pixels an em. The segments are valid until the buffer is used again.
func outline(buffer *sfnt.Buffer, f *sfnt.Font, character rune) (sfnt.Segments, fixed.Int26_6, error) {
	index, err := f.GlyphIndex(buffer, character)
	if err != nil {
		return nil, 0, err
	}
	if index == 0 {
		return nil, 0, fmt.Errorf("the font has no %U", character)
	}
	advance, err := f.GlyphAdvance(buffer, index, fixed.I(1024), font.HintingNone)
	if err != nil {
		return nil, 0, err
	}
	segments, err := f.LoadGlyph(buffer, index, fixed.I(1024), nil)
	return segments, advance, err
}

// fill rasterises an outline whose points are moved, on a square image.
func fill(segments sfnt.Segments, side int, move func(fixed.Point26_6) (x, y float32)) *image.Alpha {
	r := vector.NewRasterizer(side, side)
	for _, s := range segments {
		ax, ay := move(s.Args[0])
		switch s.Op {
		case sfnt.SegmentOpMoveTo:
			r.ClosePath()
			r.MoveTo(ax, ay)
		case sfnt.SegmentOpLineTo:
			r.LineTo(ax, ay)
		case sfnt.SegmentOpQuadTo:
			bx, by := move(s.Args[1])
			r.QuadTo(ax, ay, bx, by)
		case sfnt.SegmentOpCubeTo:
			bx, by := move(s.Args[1])
			cx, cy := move(s.Args[2])
			r.CubeTo(ax, ay, bx, by, cx, cy)
		}
	}
	r.ClosePath()
	ink := image.NewAlpha(image.Rect(0, 0, side, side))
	r.Draw(ink, ink.Rect, image.Opaque, image.Point{})
	return ink
}
