package data

import (
	"cmp"
	"fmt"
	"image"
	"image/color"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/image/draw"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
)

// Transform is what happens to an image before the network sees it, in this
// order: resize, crop (or, while training, Augment), invert, scale to [0, 1],
// normalise. Its result is a square of Channels planes.
type Transform struct {
	// Resize scales the image with a triangle filter, which averages when it
	// makes smaller: with Crop so that the shorter side is Resize and the
	// proportions stay, without Crop to Resize × Resize. 0 leaves the size.
	Resize   int     `yaml:"resize"`
	Crop     int     `yaml:"crop"`     // pixels of the square cut from the middle; 0: none
	Channels int     `yaml:"channels"` // 1 grey (luma of ITU-R BT.601) or 3 red, green, blue; 0 means 3
	Invert   bool    `yaml:"invert"`   // black becomes white, as for dark ink on light paper
	Mean     Moments `yaml:"mean"`     // subtracted, on the scale [0, 1]; imagenet sets Std as well
	Std      Moments `yaml:"std"`      // divides what Mean leaves
	Augment  Augment `yaml:"augment"`  // while training
}

// Moments is one number for all channels or one a channel. As text it is the
// numbers with "/" between them ("0.5", "0.485/0.456/0.406") or, for a mean,
// "imagenet"; empty means no change.
type Moments []float64

// The moments of the photographs of ImageNet's training set, which most
// published weights were trained with.
var (
	imagenetMean = Moments{0.485, 0.456, 0.406}
	imagenetStd  = Moments{0.229, 0.224, 0.225}
)

// UnmarshalText reads the form described at Moments.
func (m *Moments) UnmarshalText(text []byte) error {
	switch string(text) {
	case "":
		*m = nil
		return nil
	case "imagenet":
		*m = slices.Clone(imagenetMean)
		return nil
	}
	var read Moments
	for part := range strings.SplitSeq(string(text), "/") {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return fault.Inputf("%q is neither imagenet nor a number a channel, such as 0.5 or 0.485/0.456/0.406", text)
		}
		read = append(read, x)
	}
	*m = read
	return nil
}

// MarshalText writes the form described at Moments.
func (m Moments) MarshalText() ([]byte, error) {
	parts := make([]string, len(m))
	for i, x := range m {
		parts[i] = strconv.FormatFloat(x, 'g', -1, 64)
	}
	return []byte(strings.Join(parts, "/")), nil
}

// at is the number for a channel, or none where nothing is set.
func (m Moments) at(channel int, none float64) float64 {
	switch len(m) {
	case 0:
		return none
	case 1:
		return m[0]
	}
	return m[channel]
}

// ParseTransform reads "resize=256,crop=224,mean=imagenet": the keys of
// Transform in a recipe, with "augment." before those of Augment.
func ParseTransform(text string) (Transform, error) {
	var t Transform
	tree := config.Empty()
	if err := tree.Override(assignments(text)...); err != nil {
		return t, fault.Inputf("transform %q: %w", text, err)
	}
	if err := cmp.Or(tree.Decode(&t), t.Sized()); err != nil {
		return t, fault.Inputf("transform %q: %w", text, err)
	}
	return t, nil
}

// assignments cuts a text at its commas, except inside brackets.
func assignments(text string) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		}
		return r == ',' && depth == 0
	})
}

// Validate checks the settings.
func (t Transform) Validate() error {
	switch {
	case t.Resize < 0:
		return config.Invalid("resize", "is %d; give pixels, or 0 for none", t.Resize)
	case t.Crop < 0:
		return config.Invalid("crop", "is %d; give pixels, or 0 for none", t.Crop)
	case t.Resize > 0 && t.Crop > t.Resize:
		return config.Invalid("crop", "is %d, which is larger than resize=%d; lower crop or raise resize", t.Crop, t.Resize)
	case t.Channels != 0 && t.Channels != 1 && t.Channels != 3:
		return config.Invalid("channels", "is %d; give 1 (grey) or 3 (colour)", t.Channels)
	case times(int64(t.Resize), int64(t.Resize), int64(4+4*t.channels())) > resizedBytes:
		return config.Invalid("resize", "is %d: an image would take %d bytes; at most %d are taken, so give %d or less", t.Resize,
			times(int64(t.Resize), int64(t.Resize), int64(4+4*t.channels())), int64(resizedBytes), t.largest())
	case times(int64(t.Crop), int64(t.Crop), int64(4*t.channels())) > resizedBytes:
		return config.Invalid("crop", "is %d: an image would take %d bytes; at most %d are taken, so give %d or less", t.Crop,
			times(int64(t.Crop), int64(t.Crop), int64(4*t.channels())), int64(resizedBytes), t.largest())
	}
	for _, m := range []struct {
		name string
		Moments
	}{{"mean", t.Mean}, {"std", t.Std}} {
		if n := len(m.Moments); n > 1 && n != t.channels() {
			return config.Invalid(m.name, "has %d numbers for %d channels; give one for all or one a channel", n, t.channels())
		}
	}
	for c := range t.channels() {
		if s := t.std().at(c, 1); !(s > 0) {
			return config.Invalid("std", "is %g; give numbers above 0", s)
		}
	}
	return t.Augment.validate(t)
}

// largest is a side that is within bounds for both settings.
func (t Transform) largest() int {
	return int(math.Sqrt(float64(resizedBytes / (4 + 4*t.channels()))))
}

// Sized asks for a size of the images, which those of a batch must share.
func (t Transform) Sized() error {
	if t.Resize == 0 && t.Crop == 0 {
		return fault.Inputf("images of a batch must have one size; give resize or crop, such as resize=28")
	}
	return nil
}

func (t Transform) channels() int {
	if t.Channels == 0 {
		return 3
	}
	return t.Channels
}

// std is the divisor: ImageNet's when the mean is and no other is set.
func (t Transform) std() Moments {
	if len(t.Std) == 0 && slices.Equal(t.Mean, imagenetMean) {
		return imagenetStd
	}
	return t.Std
}

// Size returns the shape of one image after the transform.
func (t Transform) Size() (channels, height, width int) {
	side := t.Crop
	if side == 0 {
		side = t.Resize
	}
	return t.channels(), side, side
}

// Len is the number of values of one image: channels × height × width.
func (t Transform) Len() int {
	c, h, w := t.Size()
	return c * h * w
}

// Apply writes the transformed image to dst, which has Len values: channel by
// channel, row by row. It is what evaluation sees: without augmentation.
func (t Transform) Apply(dst []float32, img image.Image) error {
	r, err := t.prepare(img)
	if err != nil {
		return err
	}
	t.render(dst, r, t.curves(), nil)
	return nil
}

// raster is an image after the part of a transform that is always the same:
// bytes, row by row, the channels of a pixel together.
type raster struct {
	width, height, channels int
	pix                     []uint8
}

// prepare resizes and reduces to the channels wanted.
func (t Transform) prepare(img image.Image) (*raster, error) {
	w, h := t.resized(img.Bounds().Dx(), img.Bounds().Dy())
	if w < t.Crop || h < t.Crop {
		return nil, fault.Inputf("the image of %d × %d pixels is smaller than crop=%d; set resize as well", w, h, t.Crop)
	}
	if bytes := times(int64(w), int64(h), 4); bytes > resizedBytes {
		return nil, fault.Inputf("resize=%d makes the image of %d × %d pixels one of %d × %d, which takes %d bytes; at most %d are taken",
			t.Resize, img.Bounds().Dx(), img.Bounds().Dy(), w, h, bytes, int64(resizedBytes))
	}
	r := &raster{width: w, height: h, channels: t.channels(), pix: make([]uint8, w*h*t.channels())}
	if grey, ok := img.(*image.Gray); ok && r.channels == 1 && grey.Rect.Size() == image.Pt(w, h) {
		for y := range h {
			copy(r.pix[y*w:(y+1)*w], grey.Pix[grey.PixOffset(grey.Rect.Min.X, grey.Rect.Min.Y+y):])
		}
		return r, nil
	}
	r.pick(scale(img, w, h))
	return r, nil
}

// resizedBytes bounds what a setting may make of any image: 1 GiB.
const resizedBytes = 1 << 30

// memory is what prepare allocates, at most, for a picture of that size: the
// resized one in four bytes a pixel, the bytes that are kept of it, and, where
// the size changes, draw.BiLinear's rows (four float64 a place) and weights.
func (t Transform) memory(width, height int) int64 {
	w, h := t.resized(width, height)
	all := times(int64(w), int64(h), int64(4+t.channels()))
	if w != width || h != height {
		all = saturate(all, saturate(times(int64(w), int64(height), 32), 16*(3*(int64(width)+int64(height))+5*(int64(w)+int64(h)))))
	}
	return all
}

// resized is the size that Resize gives an image. The longer side is rounded
// down, as torchvision does.
func (t Transform) resized(w, h int) (int, int) {
	switch {
	case t.Resize == 0:
		return w, h
	case t.Crop == 0:
		return t.Resize, t.Resize
	case w < h:
		return t.Resize, t.Resize * h / w
	}
	return t.Resize * w / h, t.Resize
}

// scale draws an image at a size, on white where it is transparent.
func scale(img image.Image, w, h int) *image.RGBA {
	dst := image.NewRGBA(image.Rect(0, 0, w, h))
	op := draw.Src
	if see, ok := img.(interface{ Opaque() bool }); !ok || !see.Opaque() {
		op = draw.Over
		draw.Draw(dst, dst.Rect, image.White, image.Point{}, draw.Src)
	}
	if img.Bounds().Size() == dst.Rect.Size() {
		draw.Draw(dst, dst.Rect, img, img.Bounds().Min, op)
	} else {
		draw.BiLinear.Scale(dst, dst.Rect, img, img.Bounds(), op, nil)
	}
	return dst
}

// pick copies the channels wanted from an opaque image.
func (r *raster) pick(src *image.RGBA) {
	for i := range r.width * r.height {
		p := src.Pix[4*i : 4*i+3 : 4*i+3]
		if r.channels == 1 {
			r.pix[i] = color.GrayModel.Convert(color.RGBA{p[0], p[1], p[2], 255}).(color.Gray).Y
		} else {
			copy(r.pix[3*i:], p)
		}
	}
}

// curve maps the bytes of a channel to the network's numbers.
type curve struct {
	table     [256]float32 // of whole bytes
	invert    bool
	mean, std float32
}

// at is the number for a pixel between whole bytes, 0 to 255.
func (c *curve) at(pixel float32) float32 {
	if c.invert {
		pixel = 255 - pixel
	}
	return (pixel/255 - c.mean) / c.std
}

// curves returns the curve of every channel.
func (t Transform) curves() []curve {
	curves := make([]curve, t.channels())
	for i := range curves {
		c := &curves[i]
		c.invert, c.mean, c.std = t.Invert, float32(t.Mean.at(i, 0)), float32(t.std().at(i, 1))
		for v := range c.table {
			c.table[v] = c.at(float32(v))
		}
	}
	return curves
}

// render crops, augments when there is a generator, and normalises.
func (t Transform) render(dst []float32, r *raster, curves []curve, random *rand.Rand) {
	_, side, _ := t.Size()
	view := t.middle(r)
	if random != nil {
		view = t.Augment.view(t, r, random)
	}
	plane := side * side
	for c := range r.channels {
		out := dst[c*plane : (c+1)*plane]
		if x, y, whole := view.offset(); whole {
			r.copyPlane(out, &curves[c], c, x, y, side)
		} else {
			r.samplePlane(out, &curves[c], c, view, side)
		}
	}
}

// middle is the view of a centre crop; halves round to even, as torchvision
// does.
func (t Transform) middle(r *raster) view {
	_, side, _ := t.Size()
	return view{
		ax: 1, by: 1,
		x: math.RoundToEven(float64(r.width-side) / 2),
		y: math.RoundToEven(float64(r.height-side) / 2),
	}
}

// copyPlane writes the square at (x, y) of a channel.
func (r *raster) copyPlane(out []float32, c *curve, channel, x, y, side int) {
	for row := range side {
		from := ((y+row)*r.width+x)*r.channels + channel
		for col := range side {
			out[row*side+col] = c.table[r.pix[from+col*r.channels]]
		}
	}
}

// samplePlane writes what a view shows of a channel.
func (r *raster) samplePlane(out []float32, c *curve, channel int, v view, side int) {
	fine := v.oversampling()
	for row := range side {
		for col := range side {
			out[row*side+col] = c.at(r.mean(v, channel, col, row, fine))
		}
	}
}

// String is the transform in the form that ParseTransform reads, for the
// settings without augmentation.
func (t Transform) String() string {
	var parts []string
	add := func(key string, set bool, value any) {
		if set {
			parts = append(parts, fmt.Sprintf("%s=%v", key, value))
		}
	}
	mean, _ := t.Mean.MarshalText()
	std, _ := t.Std.MarshalText()
	add("resize", t.Resize > 0, t.Resize)
	add("crop", t.Crop > 0, t.Crop)
	add("channels", true, t.channels())
	add("invert", t.Invert, t.Invert)
	add("mean", len(t.Mean) > 0, string(mean))
	add("std", len(t.Std) > 0, string(std))
	return strings.Join(parts, ",")
}
