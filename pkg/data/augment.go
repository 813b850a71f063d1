package data

import (
	"math"
	"math/rand/v2"

	"roadmap/pkg/config"
)

// Augment changes an image at random while training. What happens to an image
// is a function of (seed, epoch, image) alone. The zero value changes nothing.
type Augment struct {
	RandomCrop bool       `yaml:"random_crop"` // Crop is cut anywhere instead of from the middle
	Area       [2]float64 `yaml:"area"`        // a rectangle of this share of the image (least, most) fills the result, as [0.16, 1]; [0, 0]: none
	Aspect     [2]float64 `yaml:"aspect"`      // width / height of that rectangle (least, most); [0, 0] means [0.75, 1.3333]
	Flip       float64    `yaml:"flip"`        // probability of mirroring left to right
	Rotate     float64    `yaml:"rotate"`      // degrees: up to so much either way
	Shear      float64    `yaml:"shear"`       // degrees: likewise
	Scale      float64    `yaml:"scale"`       // share: larger or smaller by up to so much, each axis alone
	Shift      float64    `yaml:"shift"`       // share of the side: up to so much along each axis
}

// active reports whether anything is changed.
func (a Augment) active() bool { return a != Augment{} && a != Augment{Aspect: a.Aspect} }

// affine reports whether the four small changes of shape are asked for.
func (a Augment) affine() bool {
	return a.Rotate != 0 || a.Shear != 0 || a.Scale != 0 || a.Shift != 0
}

func (a Augment) validate(t Transform) error {
	aspect := a.aspect()
	switch {
	case a.RandomCrop && t.Crop == 0:
		return config.Invalid("augment.random_crop", "needs crop; set crop as well")
	case a.RandomCrop && a.Area != [2]float64{}:
		return config.Invalid("augment.random_crop", "and area both choose the part of the image; drop one")
	case a.Area != [2]float64{} && !(0 < a.Area[0] && a.Area[0] <= a.Area[1] && a.Area[1] <= 1):
		return config.Invalid("augment.area", "is %v; give [least, most], shares above 0 and up to 1", a.Area)
	case !(0 < aspect[0] && aspect[0] <= aspect[1] && !math.IsInf(aspect[1], 0)):
		return config.Invalid("augment.aspect", "is %v; give [least, most], above 0", a.Aspect)
	case !(a.Flip >= 0 && a.Flip <= 1):
		return config.Invalid("augment.flip", "is %g; give a probability", a.Flip)
	case !(a.Rotate >= 0 && a.Rotate <= 180):
		return config.Invalid("augment.rotate", "is %g; give 0 to 180 degrees", a.Rotate)
	case !(a.Shear >= 0 && a.Shear < 90):
		return config.Invalid("augment.shear", "is %g; give 0 up to 90 degrees", a.Shear)
	case !(a.Scale >= 0 && a.Scale < 1):
		return config.Invalid("augment.scale", "is %g; give a share of 0 up to 1", a.Scale)
	case !(a.Shift >= 0 && a.Shift <= 1):
		return config.Invalid("augment.shift", "is %g; give a share of 0 to 1", a.Shift)
	}
	return nil
}

func (a Augment) aspect() [2]float64 {
	if a.Aspect == [2]float64{} {
		return [2]float64{3.0 / 4, 4.0 / 3}
	}
	return a.Aspect
}

// view maps a place (u, v) of the result to one of the raster, both in pixels
// from the upper left corner: (ax·u + bx·v + x, ay·u + by·v + y).
type view struct{ ax, bx, x, ay, by, y float64 }

// view draws the view of a training image.
func (a Augment) view(t Transform, r *raster, random *rand.Rand) view {
	_, side, _ := t.Size()
	v := t.middle(r)
	switch {
	case a.RandomCrop:
		v.x, v.y = float64(random.IntN(r.width-side+1)), float64(random.IntN(r.height-side+1))
	case a.Area != [2]float64{}:
		v = a.rectangle(r, side, random)
	}
	if a.Flip > 0 && random.Float64() < a.Flip {
		v = v.after(view{ax: -1, by: 1, x: float64(side)})
	}
	if a.affine() {
		v = v.after(a.distortion(float64(side), random))
	}
	return v
}

// rectangle chooses a part of the image as torchvision's RandomResizedCrop: a
// share of the area, uniform, and a shape, uniform in its logarithm; after ten
// that do not fit, the largest in the middle of a shape within the bounds.
func (a Augment) rectangle(r *raster, side int, random *rand.Rand) view {
	width, height := float64(r.width), float64(r.height)
	aspect := a.aspect()
	for range 10 {
		area := width * height * between(random, a.Area[0], a.Area[1])
		shape := math.Exp(between(random, math.Log(aspect[0]), math.Log(aspect[1])))
		w, h := math.Round(math.Sqrt(area*shape)), math.Round(math.Sqrt(area/shape))
		if 0 < w && w <= width && 0 < h && h <= height {
			x, y := random.IntN(r.width-int(w)+1), random.IntN(r.height-int(h)+1)
			return view{ax: w / float64(side), x: float64(x), by: h / float64(side), y: float64(y)}
		}
	}
	shape := min(max(width/height, aspect[0]), aspect[1])
	w, h := min(width, height*shape), min(height, width/shape)
	return view{ax: w / float64(side), x: (width - w) / 2, by: h / float64(side), y: (height - h) / 2}
}

// distortion is a small affine map of the square result about its middle.
func (a Augment) distortion(side float64, random *rand.Rand) view {
	either := func(most float64) float64 { return between(random, -most, most) }
	sin, cos := math.Sincos(either(a.Rotate) * math.Pi / 180)
	slant := math.Tan(either(a.Shear) * math.Pi / 180)
	wide, tall := 1/(1+either(a.Scale)), 1/(1+either(a.Scale))
	v := view{
		ax: wide * cos, bx: wide * (slant*cos - sin),
		ay: tall * sin, by: tall * (slant*sin + cos),
	}
	middle := side / 2
	v.x = middle - v.ax*middle - v.bx*middle + either(a.Shift)*side
	v.y = middle - v.ay*middle - v.by*middle + either(a.Shift)*side
	return v
}

func between(random *rand.Rand, least, most float64) float64 {
	return least + (most-least)*random.Float64()
}

// after is the view that first maps by inner and then by v.
func (v view) after(inner view) view {
	x, y := v.at(inner.x, inner.y)
	return view{
		ax: v.ax*inner.ax + v.bx*inner.ay, bx: v.ax*inner.bx + v.bx*inner.by, x: x,
		ay: v.ay*inner.ax + v.by*inner.ay, by: v.ay*inner.bx + v.by*inner.by, y: y,
	}
}

func (v view) at(p, q float64) (x, y float64) {
	return v.ax*p + v.bx*q + v.x, v.ay*p + v.by*q + v.y
}

// offset returns the shift of a view that only shifts, by whole pixels.
func (v view) offset() (x, y int, whole bool) {
	x, y = int(v.x), int(v.y)
	return x, y, v == view{ax: 1, by: 1, x: float64(x), y: float64(y)}
}

// oversampling is how many samples along each axis a pixel of the result needs
// so that none of the raster's pixels falls between them.
func (v view) oversampling() int {
	longest := max(math.Hypot(v.ax, v.ay), math.Hypot(v.bx, v.by))
	return max(1, int(math.Ceil(longest-0.25)))
}

// mean is the mean of fine × fine samples of a channel, spread over the pixel
// (col, row) of the result.
func (r *raster) mean(v view, channel, col, row, fine int) float32 {
	var sum float32
	step := 1 / float64(fine)
	for j := range fine {
		for i := range fine {
			x, y := v.at(float64(col)+(float64(i)+0.5)*step, float64(row)+(float64(j)+0.5)*step)
			sum += r.sample(channel, x, y)
		}
	}
	return sum / float32(fine*fine)
}

// sample interpolates a channel linearly at a place, in pixels from the upper
// left corner. Beyond the border the outermost pixels go on.
func (r *raster) sample(channel int, x, y float64) float32 {
	x, y = x-0.5, y-0.5 // pixel i has its middle at i + ½
	left, top := math.Floor(x), math.Floor(y)
	fx, fy := float32(x-left), float32(y-top)
	x0, x1 := clamp(left, r.width), clamp(left+1, r.width)
	y0, y1 := clamp(top, r.height), clamp(top+1, r.height)
	pixel := func(x, y int) float32 { return float32(r.pix[(y*r.width+x)*r.channels+channel]) }
	upper := pixel(x0, y0)*(1-fx) + pixel(x1, y0)*fx
	lower := pixel(x0, y1)*(1-fx) + pixel(x1, y1)*fx
	return upper*(1-fy) + lower*fy
}

func clamp(x float64, n int) int { return int(min(max(x, 0), float64(n-1))) }
