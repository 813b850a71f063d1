package data

import (
	"encoding/json"
	"image"
	"image/color"
	"math"
	"os"
	"slices"
	"testing"

	"roadmap/pkg/config"
	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/rng"
)

// A 2 × 2 picture, inverted and normalised, every value written out.
func TestApplyByHand(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 2, 2))
	copy(img.Pix, []uint8{0, 51, 102, 255})
	tr := Transform{Resize: 2, Channels: 1, Invert: true, Mean: Moments{0.5}, Std: Moments{0.25}}
	got := apply(t, tr, img)
	want := []float32{
		(1.0 - 0.5) / 0.25, // black becomes white
		(0.8 - 0.5) / 0.25, // (255-51)/255
		(0.6 - 0.5) / 0.25,
		(0.0 - 0.5) / 0.25,
	}
	near(t, got, want, 1e-6)
}

// Colour: planes in the order red, green, blue, each with its own moments.
func TestApplyColourByHand(t *testing.T) {
	img := image.NewRGBA(image.Rect(5, 7, 7, 8)) // bounds that do not begin at 0
	img.SetRGBA(5, 7, color.RGBA{255, 0, 51, 255})
	img.SetRGBA(6, 7, color.RGBA{0, 255, 102, 255})
	tr := Transform{Crop: 1, Channels: 3, Mean: Moments{0.1, 0.2, 0.3}, Std: Moments{1, 2, 4}}
	got := apply(t, tr, img)
	// The margin of 1 pixel is halved to even: RoundToEven(0.5) = 0, so the left pixel.
	near(t, got, []float32{(1 - 0.1) / 1, (0 - 0.2) / 2, (0.2 - 0.3) / 4}, 1e-6)
	// Grey of the same pixel: 0.299 R + 0.587 G + 0.114 B.
	grey := apply(t, Transform{Crop: 1, Channels: 1}, img)
	near(t, grey, []float32{(0.299*255 + 0.114*51) / 255}, 0.5/255)
}

func TestTransparentIsWhite(t *testing.T) {
	img := image.NewNRGBA(image.Rect(0, 0, 4, 4)) // all transparent
	img.SetNRGBA(0, 0, color.NRGBA{0, 0, 0, 255})
	for _, resize := range []int{4, 2} { // copied, and scaled
		got := apply(t, Transform{Resize: resize, Channels: 3}, img)
		if got[0] > 0.9 || got[len(got)-1] != 1 {
			t.Errorf("resize=%d: black corner %g, transparent corner %g, want white", resize, got[0], got[len(got)-1])
		}
	}
}

// Against Pillow and torchvision. Pillow rounds between its two passes, so a
// value may differ by one step of 255.
func TestResizeAgainstPillow(t *testing.T) {
	content, err := os.ReadFile("testdata/resize_reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		Cases []struct {
			Width, Height, Channels, Resize, Crop int
			Pixels                                []float64
		}
	}
	if err := json.Unmarshal(content, &reference); err != nil {
		t.Fatal(err)
	}
	if len(reference.Cases) != 7 {
		t.Fatalf("%d cases", len(reference.Cases))
	}
	for _, c := range reference.Cases {
		img := image.NewRGBA(image.Rect(0, 0, c.Width, c.Height))
		for y := range c.Height {
			for x := range c.Width {
				p := color.RGBA{A: 255}
				p.R = uint8(x*x*3 + y*29 + x*y)
				p.G, p.B = p.R, p.R
				if c.Channels == 3 {
					p.G, p.B = uint8(x*x*3+y*29+x*y*2+40), uint8(x*x*3+y*29+x*y*3+80)
				}
				img.SetRGBA(x, y, p)
			}
		}
		tr := Transform{Resize: c.Resize, Crop: c.Crop, Channels: c.Channels}
		got := apply(t, tr, img)
		_, side, _ := tr.Size()
		var worst, sum float64
		for i, want := range c.Pixels { // row by row, channels together
			at, channel := i/c.Channels, i%c.Channels
			d := math.Abs(float64(got[channel*side*side+at])*255 - want)
			worst, sum = max(worst, d), sum+d
		}
		if len(got) != len(c.Pixels) || worst > 1.01 || sum/float64(len(got)) > 0.3 {
			t.Errorf("%d×%d×%d resize=%d crop=%d: %d values of %d, differing by %.2f of 255 at most, %.3f in the mean",
				c.Width, c.Height, c.Channels, c.Resize, c.Crop, len(got), len(c.Pixels), worst, sum/float64(len(got)))
		}
		if c.Resize == 0 && worst > 1e-3 {
			t.Errorf("a crop alone differs by %g", worst)
		}
	}
}

// Making smaller averages: a checkerboard of single pixels becomes grey, not a
// pattern of what happened to be hit.
func TestResizeIsAntialiased(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 100, 100))
	for i := range img.Pix {
		if (i/100+i%100)%2 == 0 {
			img.Pix[i] = 255
		}
	}
	for _, v := range apply(t, Transform{Resize: 23, Channels: 1}, img) {
		if v < 0.4 || v > 0.6 {
			t.Fatalf("a value of %g in a checkerboard made smaller, want about 0.5", v)
		}
	}
}

func TestGreyShortcutAgreesWithTheLongWay(t *testing.T) {
	grey := image.NewGray(image.Rect(3, 4, 23, 24))
	for i := range grey.Pix {
		grey.Pix[i] = uint8(i * 7)
	}
	colour := image.NewNRGBA(grey.Rect)
	for y := 4; y < 24; y++ {
		for x := 3; x < 23; x++ {
			colour.Set(x, y, grey.At(x, y))
		}
	}
	tr := Transform{Resize: 20, Channels: 1}
	if !slices.Equal(apply(t, tr, grey), apply(t, tr, colour)) {
		t.Error("a grey image copied differs from the same in colour")
	}
	part := grey.SubImage(image.Rect(5, 6, 15, 16)).(*image.Gray)
	got := apply(t, Transform{Resize: 10, Channels: 1}, part)
	if want := float32(grey.GrayAt(14, 15).Y) / 255; got[99] != want {
		t.Errorf("the last pixel of a part of an image is %g, want %g", got[99], want)
	}
}

func TestParseTransform(t *testing.T) {
	cases := []struct {
		text string
		want Transform
	}{
		{"resize=256,crop=224,mean=imagenet", Transform{Resize: 256, Crop: 224, Mean: imagenetMean}},
		{"resize=28,channels=1,invert=true", Transform{Resize: 28, Channels: 1, Invert: true}},
		{"crop=20,mean=0.5,std=0.1/0.2/0.3", Transform{Crop: 20, Mean: Moments{0.5}, Std: Moments{0.1, 0.2, 0.3}}},
		{"resize=256,crop=224,augment.area=[0.16,1],augment.flip=0.5", Transform{Resize: 256, Crop: 224, Augment: Augment{Area: [2]float64{0.16, 1}, Flip: 0.5}}},
	}
	for _, c := range cases {
		got, err := ParseTransform(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if !sameTransform(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.text, got, c.want)
		}
		got.Augment = Augment{}
		back, err := ParseTransform(got.String())
		got.Channels = got.channels()
		if err != nil || !sameTransform(back, got) {
			t.Errorf("%q read back is %+v (%v), want %+v", got.String(), back, err, got)
		}
	}
}

func TestParseTransformRefusals(t *testing.T) {
	cases := []struct {
		text string
		says []string
	}{
		{"", []string{"give resize or crop"}},
		{"resiz=3", []string{"resiz", "did you mean resize"}},
		{"resize=big", []string{"resize", "whole number"}},
		{"resize=-1", []string{"resize=-1"}},
		{"resize=20,crop=30", []string{"crop is 30, which is larger than resize=20"}},
		{"resize=20,channels=2", []string{"channels=2", "1 (grey) or 3 (colour)"}},
		{"resize=20,mean=imagnet", []string{"mean", "imagnet", "0.485/0.456/0.406"}},
		{"resize=20,mean=nan", []string{"mean", "nan"}},
		{"resize=20,mean=0.1/0.2", []string{"mean has 2 numbers for 3 channels"}},
		{"resize=20,channels=1,mean=imagenet", []string{"mean has 3 numbers for 1 channels"}},
		{"resize=20,std=0", []string{"std is 0"}},
		{"resize=20,std=-1/1/1", []string{"std is -1"}},
		{"resize=20,augment.flip=2", []string{"flip is 2", "probability"}},
		{"resize=20,augment.random_crop=true", []string{"random_crop needs crop"}},
		{"resize=20,crop=10,augment.random_crop=true,augment.area=[0.1,1]", []string{"random_crop and area"}},
		{"resize=20,augment.area=[0.5,0.1]", []string{"area is [0.5 0.1]"}},
		{"resize=20,augment.area=[0.5]", []string{"area", "2"}},
		{"resize=20,augment.aspect=[2,1]", []string{"aspect is [2 1]"}},
		{"resize=20,augment.rotate=-3", []string{"rotate is -3"}},
		{"resize=20,augment.shear=90", []string{"shear is 90"}},
		{"resize=20,augment.scale=1", []string{"scale is 1"}},
		{"resize=20,augment.shift=2", []string{"shift is 2"}},
	}
	for _, c := range cases {
		_, err := ParseTransform(c.text)
		t.Run(c.text, func(t *testing.T) { faulttest.Refused(t, err, c.says...) })
	}
}

func TestTransformFromRecipe(t *testing.T) {
	tree, err := config.Parse("recipe.yaml", []byte("resize: 256\ncrop: 224\nmean: imagenet\naugment: {area: [0.16, 1], flip: 0.5}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var tr Transform
	if err := tree.Decode(&tr); err != nil {
		t.Fatal(err)
	}
	want := Transform{Resize: 256, Crop: 224, Mean: imagenetMean, Augment: Augment{Area: [2]float64{0.16, 1}, Flip: 0.5}}
	if !sameTransform(tr, want) {
		t.Errorf("%+v, want %+v", tr, want)
	}
	if !slices.Equal(tr.std(), imagenetStd) {
		t.Errorf("the mean of imagenet brings std %v", tr.std())
	}
	if c, h, w := tr.Size(); c != 3 || h != 224 || w != 224 || tr.Len() != 3*224*224 {
		t.Errorf("size %d %d %d, %d values", c, h, w, tr.Len())
	}
}

func TestCropOfASmallImage(t *testing.T) {
	tr := Transform{Crop: 9, Channels: 1}
	err := tr.Apply(make([]float32, tr.Len()), picture(20, 8, 0))
	faulttest.Refused(t, err, "20 × 8", "crop=9", "set resize")
	tr = Transform{Resize: 1 << 14, Crop: 9, Channels: 1}
	err = tr.Apply(make([]float32, tr.Len()), image.NewGray(image.Rect(0, 0, 1, 1<<12)))
	faulttest.Refused(t, err, "1 × 4096", "at most")
}

// The zero Augment changes nothing, and neither does one whose random part is
// drawn but leaves everything as it was.
func TestAugmentNothing(t *testing.T) {
	img := picture(40, 30, 3)
	tr := Transform{Resize: 20, Channels: 3}
	plain := apply(t, tr, img)
	if got := augmented(t, tr, img, 1); !slices.Equal(got, plain) {
		t.Error("the zero Augment changes the image")
	}
	tr.Augment = Augment{Area: [2]float64{1, 1}, Aspect: [2]float64{1, 1}}
	if got := augmented(t, tr, img, 1); !slices.Equal(got, plain) {
		t.Error("the whole area at the image's own shape is not the image")
	}
}

func TestFlipByHand(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 3, 3))
	copy(img.Pix, []uint8{1, 2, 3, 4, 5, 6, 7, 8, 9})
	tr := Transform{Resize: 3, Channels: 1, Augment: Augment{Flip: 1}}
	got := augmented(t, tr, img, 5)
	for i, want := range []float32{3, 2, 1, 6, 5, 4, 9, 8, 7} {
		if got[i] != want/255 {
			t.Fatalf("mirrored: value %d is %g/255, want %g", i, got[i]*255, want)
		}
	}
	tr.Augment.Flip = 0.5
	flips := 0
	for seed := range uint64(1000) {
		if augmented(t, tr, img, seed)[0] == 3.0/255 {
			flips++
		}
	}
	if flips < 437 || flips > 563 { // 500 expected, 4 standard deviations of 15.8
		t.Errorf("%d of 1000 mirrored at probability 0.5", flips)
	}
}

// Every place of a random crop is a plain crop there, and all places come.
func TestRandomCrop(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 6, 6))
	for i := range img.Pix {
		img.Pix[i] = uint8(i)
	}
	tr := Transform{Crop: 4, Channels: 1, Augment: Augment{RandomCrop: true}}
	places := map[int]int{}
	for seed := range uint64(300) {
		got := augmented(t, tr, img, seed)
		first := int(math.Round(float64(got[0]) * 255))
		for i, v := range got {
			if want := first + i/4*6 + i%4; int(math.Round(float64(v)*255)) != want {
				t.Fatalf("crop at %d: value %d is %g, want %d", first, i, v*255, want)
			}
		}
		places[first]++
	}
	if len(places) != 3*3 {
		t.Errorf("crops begin at %v, want 9 places", places)
	}
}

// A quarter turn, found among the random angles, turns the picture; the middle
// of the picture stays where it is at every angle.
func TestDistortionTurnsAboutTheMiddle(t *testing.T) {
	a := Augment{Rotate: 180, Shear: 30, Scale: 0.3}
	for seed := range uint64(50) {
		v := a.distortion(28, rng.New(seed))
		if x, y := v.at(14, 14); math.Abs(x-14) > 1e-9 || math.Abs(y-14) > 1e-9 {
			t.Fatalf("the middle goes to (%g, %g)", x, y)
		}
	}
	quarter := view{bx: -1, x: 3, ay: 1} // (u, v) of the result shows (3-v, u) of the image
	img := &raster{width: 3, height: 3, channels: 1, pix: []uint8{1, 2, 3, 4, 5, 6, 7, 8, 9}}
	out := make([]float32, 9)
	img.samplePlane(out, &Transform{Resize: 3, Channels: 1}.curves()[0], 0, quarter, 3)
	for i, want := range []float32{3, 6, 9, 2, 5, 8, 1, 4, 7} {
		if math.Abs(float64(out[i]*255-want)) > 1e-4 {
			t.Errorf("turned: value %d is %g, want %g", i, out[i]*255, want)
		}
	}
}

// Each small change of shape alone: a turn keeps lengths and right angles, a
// shear keeps rows, a scale keeps directions.
func TestDistortionsByHand(t *testing.T) {
	const tolerance = 1e-12
	for seed := range uint64(200) {
		v := Augment{Rotate: 30}.distortion(28, rng.New(seed))
		if math.Abs(v.ax*v.ax+v.ay*v.ay-1) > tolerance || math.Abs(v.ax-v.by) > tolerance || math.Abs(v.ay+v.bx) > tolerance || v.ax < math.Cos(math.Pi/6) {
			t.Fatalf("a turn of up to 30°: %+v", v)
		}
		v = Augment{Shear: 45}.distortion(28, rng.New(seed))
		if v.ax != 1 || v.ay != 0 || v.by != 1 || math.Abs(v.bx) > 1 {
			t.Fatalf("a shear of up to 45°: %+v", v)
		}
		v = Augment{Scale: 0.5}.distortion(28, rng.New(seed))
		if v.bx != 0 || v.ay != 0 || v.ax < 1/1.5 || v.ax > 1/0.5 || v.by < 1/1.5 || v.by > 1/0.5 {
			t.Fatalf("larger or smaller by up to a half: %+v", v)
		}
		v = Augment{Rotate: 180, Shear: 60, Scale: 0.5}.distortion(28, rng.New(seed))
		if det := v.ax*v.by - v.bx*v.ay; det < 1/(1.5*1.5) || det > 1/(0.5*0.5) {
			t.Fatalf("turn and shear keep areas, scale alone changes them: %+v has %g", v, det)
		}
	}
}

func TestAugmentStaysWithinItsBounds(t *testing.T) {
	r := &raster{width: 60, height: 40, channels: 1, pix: make([]uint8, 2400)}
	area := Augment{Area: [2]float64{0.2, 0.6}}
	tr := Transform{Resize: 24, Channels: 1, Augment: area}
	least, most := 1.0, 0.0
	for seed := range uint64(2000) {
		v := area.rectangle(r, 24, rng.New(seed))
		w, h := v.ax*24, v.by*24
		if v.x < 0 || v.y < 0 || v.x+w > 60+1e-9 || v.y+h > 40+1e-9 || v.bx != 0 || v.ay != 0 {
			t.Fatalf("the rectangle %+v leaves the image", v)
		}
		share := w * h / 2400
		least, most = min(least, share), max(most, share)
		if shape := w / h; shape < 0.75*0.93 || shape > 4.0/3*1.07 { // sides are rounded to pixels
			t.Fatalf("a rectangle of %g × %g", w, h)
		}
	}
	if least < 0.2*0.93 || least > 0.23 || most > 0.6*1.07 || most < 0.55 {
		t.Errorf("areas between %g and %g of the image, asked for 0.2 to 0.6", least, most)
	}
	// No square fits the whole of a 3:2 picture: the middle is taken.
	v := Augment{Area: [2]float64{1, 1}, Aspect: [2]float64{1, 1}}.rectangle(r, 24, rng.New(1))
	if want := (view{ax: 40.0 / 24, x: 10, by: 40.0 / 24}); v != want {
		t.Errorf("the largest square is %+v, want %+v", v, want)
	}
	shift := Augment{Shift: 0.25}
	for seed := range uint64(500) {
		v := shift.view(tr, r, rng.New(seed))
		m := tr.middle(r)
		if math.Abs(v.x-m.x) > 6 || math.Abs(v.y-m.y) > 6 || v.ax != 1 || v.by != 1 {
			t.Fatalf("a shift of %g, %g pixels, at most a quarter of 24 asked for", v.x-m.x, v.y-m.y)
		}
	}
}

// Reducing through a view averages as well.
func TestViewIsAntialiased(t *testing.T) {
	r := &raster{width: 90, height: 90, channels: 1, pix: make([]uint8, 8100)}
	for i := range r.pix {
		if (i/90+i%90)%2 == 0 {
			r.pix[i] = 255
		}
	}
	out := make([]float32, 900)
	r.samplePlane(out, &Transform{Resize: 30, Channels: 1}.curves()[0], 0, view{ax: 3, by: 3}, 30)
	for _, v := range out {
		if v < 0.35 || v > 0.65 {
			t.Fatalf("a value of %g in a checkerboard made smaller, want about 0.5", v)
		}
	}
}

func apply(t *testing.T, tr Transform, img image.Image) []float32 {
	t.Helper()
	out := make([]float32, tr.Len())
	if err := tr.Apply(out, img); err != nil {
		t.Fatal(err)
	}
	return out
}

func augmented(t *testing.T, tr Transform, img image.Image, seed uint64) []float32 {
	t.Helper()
	if err := tr.Validate(); err != nil {
		t.Fatal(err)
	}
	r, err := tr.prepare(img)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, tr.Len())
	tr.render(out, r, tr.curves(), rng.New(seed))
	return out
}

func near(t *testing.T, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > tolerance {
			t.Errorf("value %d is %g, want %g", i, got[i], want[i])
		}
	}
}

func sameTransform(a, b Transform) bool {
	return a.Resize == b.Resize && a.Crop == b.Crop && a.Channels == b.Channels && a.Invert == b.Invert &&
		slices.Equal(a.Mean, b.Mean) && slices.Equal(a.Std, b.Std) && a.Augment == b.Augment
}
