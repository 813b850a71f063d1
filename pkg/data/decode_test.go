package data

import (
	"archive/zip"
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"roadmap/pkg/config"
	"roadmap/pkg/fault/faulttest"
)

// pngHeader is a PNG that claims a size and type, with the given raw pixels.
func pngHeader(t testing.TB, width, height uint32, depth, colour, interlaced byte, pixels []byte) []byte {
	t.Helper()
	out := []byte("\x89PNG\r\n\x1a\n")
	chunk := func(kind string, data []byte) {
		out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
		out = append(append(out, kind...), data...)
		out = append(out, crc(out[len(out)-len(data)-4:])...)
	}
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)
	chunk("IHDR", append(head, depth, colour, 0, 0, interlaced))
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	if _, err := w.Write(pixels); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	chunk("IDAT", packed.Bytes())
	chunk("IEND", nil)
	return out
}

// jpegHeader is a JPEG of so many components that claims a size: its tables, one
// scan's header, and 1,000 bytes of it.
func jpegHeader(width, height uint16, components int, progressive bool) []byte {
	out := append([]byte("\xff\xd8\xff\xdb\x00\x43\x00"), bytes.Repeat([]byte{1}, 64)...)
	frame := byte(0xc0)
	if progressive {
		frame = 0xc2
	}
	out = append(out, 0xff, frame, 0, byte(8+3*components), 8)
	out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(out, height), width)
	out = append(out, byte(components))
	for i := range components {
		out = append(out, byte(i+1), 0x11, 0)
	}
	for _, table := range []byte{0x00, 0x10} { // one code, of one bit, for 0
		out = append(append(out, 0xff, 0xc4, 0, 20, table, 1), make([]byte, 15)...)
		out = append(out, 0)
	}
	out = append(out, 0xff, 0xda, 0, byte(6+2*components), byte(components))
	for i := range components {
		out = append(out, byte(i+1), 0)
	}
	last := byte(63)
	if progressive {
		last = 0
	}
	return append(append(out, 0, last, 0), make([]byte, 1000)...)
}

// TestHugePictures: small files whose headers ask for much. None is decoded.
func TestHugePictures(t *testing.T) {
	for name, c := range map[string]struct {
		content []byte
		need    string // bytes, worked out by hand
	}{
		// 16384 (rounded up to blocks) squared, 4 inks: planes 4, coefficients 16, the picture 4 bytes a pixel
		"cmyk.jpg": {jpegHeader(16383, 16383, 4, true), fmt.Sprint(16384 * 16384 * 24)},
		// planes 3, coefficients 12
		"progressive.jpg": {jpegHeader(16383, 16383, 3, true), fmt.Sprint(16384 * 16384 * 15)},
		"inks.jpg":        {jpegHeader(16384, 16384, 4, false), fmt.Sprint(16384 * 16384 * 8)},
		// 8 bytes a pixel, twice as it is interlaced; two raw rows
		"interlaced.png": {pngHeader(t, 16384, 16384, 16, 6, 1, nil), fmt.Sprint(16384*16384*16 + 2*(1+16384*8))},
		"deep.png":       {pngHeader(t, 16384, 16384, 16, 2, 0, nil), fmt.Sprint(16384*16384*8 + 2*(1+16384*6))},
		"wider.png":      {pngHeader(t, 1<<28+1, 1, 1, 0, 0, nil), "9223372036854775807"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, &Folder{Root: write(t, map[string][]byte{"a/" + name: c.content}), OnError: Fail}, All)
			var err error
			if got := allocatedBy(func() { _, err = d.Items[0].Image() }); got > 1<<20 {
				t.Errorf("%d bytes allocated", got)
			}
			faulttest.Refused(t, err, name, "takes "+c.need+" bytes to decode and resize; at most 1073741824", "data.max_image")
			broken, err := d.Verify(context.Background(), 2, nil)
			if err != nil || len(broken) != 1 {
				t.Errorf("Verify finds %v, %v", broken, err)
			}
		})
	}
}

// TestLongPicturesResized: what resizing takes counts, too. Of a row of pixels
// it is the weights, of a column the rows between the two passes.
func TestLongPicturesResized(t *testing.T) {
	for name, c := range map[string]struct {
		width, height uint32
		need          int
	}{
		"wide.png": {1 << 28, 1, 1<<28 + 2*(1+1<<28) + 28*28*5 + 28*32 + 16*(3*(1<<28+1)+5*56)},
		"tall.png": {1, 1 << 28, 1<<28 + 2*(1+1) + 28*28*5 + 28*1<<28*32 + 16*(3*(1<<28+1)+5*56)},
	} {
		content := pngHeader(t, c.width, c.height, 8, 0, 0, nil)
		d := open(t, &Folder{Root: write(t, map[string][]byte{"a/" + name: content}), OnError: Fail}, All)
		l := loader(t, d, Transform{Resize: 28, Channels: 1}, LoaderOptions{})
		var err error
		got := allocatedBy(func() {
			for _, e := range l.Batches(context.Background(), 0, [][]int{{0}}) {
				err = e
			}
		})
		if got > 1<<20 {
			t.Errorf("%s: %d bytes allocated", name, got)
		}
		faulttest.Refused(t, err, name, fmt.Sprintf("takes %d bytes", c.need))
	}
}

// allocatedBy is the memory that run asks for, in bytes.
func allocatedBy(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestDecodedBytes: what a header is said to need is what decoding it allocates,
// or a little more, and never less by more than the decoder's own tables.
func TestDecodedBytes(t *testing.T) {
	const side = 500
	rect := image.Rect(0, 0, side, side)
	nrgba := image.NewNRGBA(rect)
	nrgba.Set(3, 3, color.NRGBA{1, 2, 3, 4})
	palette := image.NewPaletted(rect, color.Palette{color.Black, color.White})
	raw := func(bytes int) []byte { return make([]byte, side*(1+bytes)) }
	encode := func(img image.Image) []byte {
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	grey := bytes.Buffer{}
	if err := jpeg.Encode(&grey, image.NewGray(rect), nil); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"grey.png": encode(image.NewGray(rect)), "grey16.png": encode(image.NewGray16(rect)), "rgba.png": encode(picture(side, side, 1)),
		"nrgba.png": encode(nrgba), "rgba64.png": encode(image.NewRGBA64(rect)), "nrgba64.png": encode(image.NewNRGBA64(rect)),
		"palette.png": encode(palette), "grey+alpha.png": pngHeader(t, side, side, 8, 4, 0, raw(2*side)), "bits.png": pngHeader(t, side, side, 1, 0, 0, raw(63)),
		"grey.jpg": grey.Bytes(), "colour.jpg": jpegOf(t, picture(side, side, 1)),
	} {
		config, format, err := image.DecodeConfig(bytes.NewReader(content))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		said := decodedBytes(format, config.Width, config.Height, content)
		got := allocatedBy(func() { _, _, err = image.Decode(bytes.NewReader(content)) })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		const tables = 100_000 // of inflate, Huffman codes and the like
		if int64(got) > said+tables || said > 2*int64(got)+tables {
			t.Errorf("%s: said to take %d bytes, it took %d", name, said, got)
		}
	}
	// Of these the pixels are cut off, after the memory was taken.
	for name, content := range map[string][]byte{
		"progressive.jpg": jpegHeader(side, side, 3, true), "progressive inks.jpg": jpegHeader(side, side, 4, true), "inks.jpg": jpegHeader(side, side, 4, false),
		"interlaced.png": pngHeader(t, side, side, 16, 6, 1, make([]byte, 100)),
	} {
		_, format, err := image.DecodeConfig(bytes.NewReader(content))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		said := decodedBytes(format, side, side, content)
		got := allocatedBy(func() { _, _, err = image.Decode(bytes.NewReader(content)) })
		if err == nil || int64(got) > said+100_000 || said > 3*int64(got) {
			t.Errorf("%s: said to take %d bytes, it took %d; %v", name, said, got, err)
		}
	}
}

// TestImageLimit: the setting allows what the default does not, and the other
// way round, for every collection that reads files.
func TestImageLimit(t *testing.T) {
	root := write(t, map[string][]byte{"a/1.png": pngOf(t, picture(600, 600, 1)), "l.csv": []byte("path,label\na/1.png,x\n")}) // 1,440,000 bytes and two rows
	for mb := range int64(3) {                                                                                                 // 0 is the default, of 1024
		for _, c := range []Collection{
			&Folder{Root: root, OnError: Fail, MaxImage: config.Bytes(mb << 20)}, &List{Test: filepath.Join(root, "l.csv"), OnError: Fail, MaxImage: config.Bytes(mb << 20)},
		} {
			_, err := open(t, c, All).Items[0].Image()
			if mb == 1 {
				faulttest.Refused(t, err, "1.png", "takes 1443602 bytes to decode and resize; at most 1048576")
			} else if err != nil {
				t.Errorf("%d MiB: %v", mb, err)
			}
		}
	}
	for _, c := range []Collection{&Folder{Root: root, OnError: Fail, MaxImage: -1}, &List{Test: "x", OnError: Fail, MaxImage: 1 << 50}, &Omniglot{Protocol: "official", OnError: Fail, MaxImage: 1<<63 - 1}} {
		_, err := c.Open(All)
		faulttest.Refused(t, err, "max_image", "bytes; give up to 1TiB")
	}
}

// TestBudget: however many ask, no more than the budget is out, and what is
// larger than all of it has it to itself.
func TestBudget(t *testing.T) {
	b := newBudget(100)
	var out, most atomic.Int64
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			n := int64(i % 150)
			defer b.take(n)()
			now := out.Add(min(n, 100))
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			out.Add(-min(n, 100))
		})
	}
	wait.Wait()
	if most.Load() > 100 || most.Load() == 0 {
		t.Errorf("%d of 100 bytes were out", most.Load())
	}
}

// lying is an archive with one picture whose entry claims a size, or has
// another checksum.
func lying(t *testing.T, method uint16, claims uint64, sum uint32) string {
	t.Helper()
	content := pngOf(t, picture(5, 5, 1))
	name := filepath.Join(t.TempDir(), "a.zip")
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	w, err := z.CreateRaw(&zip.FileHeader{Name: "a/1.png", Method: method, UncompressedSize64: claims, CompressedSize64: uint64(len(content)), CRC32: sum})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestArchivesThatLie: what an entry claims to hold costs nothing.
func TestArchivesThatLie(t *testing.T) {
	content := pngOf(t, picture(5, 5, 1))
	sum, size := crc32.ChecksumIEEE(content), uint64(len(content))
	for name, c := range map[string]struct {
		archive string
		says    string
	}{
		"2^62":      {lying(t, zip.Store, 1<<62, sum), "said to be of 4611686018427387904 bytes; at most 268435456"},
		"2^45":      {lying(t, zip.Store, 1<<45, sum), "said to be of 35184372088832 bytes"},
		"2^64-2":    {lying(t, zip.Store, 1<<64-2, sum), "said to be of 18446744073709551614 bytes"},
		"2^27":      {lying(t, zip.Store, 1<<27, sum), "the archive is damaged there"},
		"packed":    {lying(t, zip.Deflate, 1<<27, sum), "1.png: broken image"},
		"too short": {lying(t, zip.Store, size-1, sum), "the archive is damaged there"},
		"checksum":  {lying(t, zip.Store, size, sum^1), "has not the CRC-32 that was written"},
		"bomb":      {bomb(t), "said to be of 536870912 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, &Folder{Root: c.archive, OnError: Fail}, All)
			var err error
			if got := allocatedBy(func() { _, err = d.Items[0].Image() }); got > 4<<20 {
				t.Errorf("%d bytes allocated", got)
			}
			faulttest.Refused(t, err, "1.png", c.says)
		})
	}
	d := open(t, &Folder{Root: lying(t, zip.Store, size, sum), OnError: Fail}, All)
	if _, err := d.Items[0].Image(); err != nil {
		t.Errorf("an honest entry: %v", err)
	}
}

// bomb is half a megabyte that unpacks to 512 MiB.
func bomb(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "b.zip")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(file)
	w, err := z.Create("a/1.png")
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 512 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestArchiveOfDeepFolders(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "deep.zip")
	pack(t, archive, map[string][]byte{strings.Repeat("a/", 30_000) + "1.png": pngOf(t, picture(5, 5, 1))})
	_, err := (&Folder{Root: archive, OnError: Fail}).Open(All)
	faulttest.Refused(t, err, "deep.zip", "more than 64 folders")
}

// TestOtherArchives: what is not read says what it is.
func TestOtherArchives(t *testing.T) {
	tar := make([]byte, 1024)
	copy(tar[257:], "ustar")
	for name, c := range map[string]struct{ content, says string }{
		"a.tar":    {string(tar), "a.tar is a tar archive, which is not read; unpack it"},
		"b":        {string(tar), "is a tar archive"},
		"c.tar.gz": {"\x1f\x8b\x08", "is a gzip file, which is not read; unpack it, or pack it anew as a zip archive"},
		"d.7z":     {"7z\xbc\xaf\x27\x1c", "is a 7-Zip archive"},
	} {
		_, err := (&Folder{Root: filepath.Join(write(t, map[string][]byte{name: []byte(c.content)}), name), OnError: Fail}).Open(All)
		faulttest.Refused(t, err, name, c.says)
	}
}

// TestOnlyRegularFilesAreImages: pipes would be waited for, devices never end.
func TestOnlyRegularFilesAreImages(t *testing.T) {
	root := write(t, map[string][]byte{"a/1.png": pngOf(t, picture(5, 5, 1)), "l.csv": []byte("path,label\na/pipe.png,x\na/zero.png,x\na/1.png,x\n")})
	at := func(name string) string { return filepath.Join(root, name) }
	if err := errors.Join(unix.Mkfifo(at("a/pipe.png"), 0o600), unix.Mkfifo(at("pipe.zip"), 0o600), unix.Mkfifo(at("pipe.csv"), 0o600),
		os.Symlink("/dev/zero", at("a/zero.png")), os.Symlink("/dev/zero", at("zero.csv")), os.Symlink("1.png", at("a/2.png"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Collection{&Folder{Root: root, OnError: Skip}, &List{Test: at("l.csv"), OnError: Skip}} {
		d := open(t, c, All)
		var said []string
		for _, b := range d.Skipped {
			said = append(said, filepath.Base(b.Path)+": "+b.Err.Error())
		}
		if !slices.Equal(said, []string{"pipe.png: a pipe, not a regular file", "zero.png: a device, not a regular file"}) {
			t.Errorf("%s: %q", d.Name, said)
		}
	}
	for _, c := range []Collection{&Folder{Root: at("pipe.zip"), OnError: Fail}, &List{Test: at("pipe.csv"), OnError: Fail}, &List{Test: at("zero.csv"), OnError: Fail}} {
		_, err := c.Open(All)
		faulttest.Refused(t, err, "not a regular file")
	}
}

// TestNamesThatAreNotUTF8: they could be written to no list, so they are refused
// at once, in folders and in lists.
func TestNamesThatAreNotUTF8(t *testing.T) {
	p := pngOf(t, picture(5, 5, 1))
	for _, name := range []string{"caf\xe9/1.png", "a/caf\xe9.png"} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Skip(err) // file systems that take UTF-8 alone
		}
		if err := os.WriteFile(filepath.Join(root, name), p, 0o600); err != nil {
			t.Skip(err)
		}
		_, err := (&Folder{Root: root, OnError: Fail}).Open(All)
		faulttest.Refused(t, err, `caf\xe9`, "is not UTF-8; rename it")
	}
	archive := filepath.Join(t.TempDir(), "a.zip")
	pack(t, archive, map[string][]byte{"caf\xe9/1.png": p})
	_, err := (&Folder{Root: archive, OnError: Fail}).Open(All)
	faulttest.Refused(t, err, archive, `caf\xe9`, "is not UTF-8")
	list := filepath.Join(write(t, map[string][]byte{"l.csv": []byte("path,label\na.png,cafe\nb.png,caf\xe9\n")}), "l.csv")
	_, err = (&List{Test: list, OnError: Fail}).Open(All)
	faulttest.Refused(t, err, "l.csv:3:", `"b.png,caf\xe9" is not UTF-8 text`)
}

// TestPassedOver: files that are no images by their names, and classes that are
// empty for it, are told.
func TestPassedOver(t *testing.T) {
	p := pngOf(t, picture(5, 5, 1))
	files := map[string][]byte{"a/1.png": p, "a/2.WEBP": nil, "b/1.webp": nil, "b/2.bmp": nil, "c/1.png": p, "d/LICENSE": nil, "list.txt": nil, "a/.hidden": nil}
	archive := filepath.Join(t.TempDir(), "a.zip")
	pack(t, archive, files)
	root := write(t, files)
	for _, r := range []string{root, archive} {
		d := open(t, &Folder{Root: r, OnError: Fail}, All)
		want := fmt.Sprintf("files that are neither PNG nor JPEG by their names: 1 without an ending, 1 .bmp, 1 .txt, 2 .webp; classes without an image: 2 (%s, %s)",
			r+map[bool]string{true: ":", false: "/"}[r == archive]+"b", r+map[bool]string{true: ":", false: "/"}[r == archive]+"d")
		if got := d.PassedOver(); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
	if got := open(t, &Folder{Root: write(t, photos(t)), OnError: Fail}, All).PassedOver(); got != "" {
		t.Errorf("a folder of images: %q", got)
	}
}

// TestSettingsOutOfReach are refused before anything is allocated, with the
// bytes that they would take.
func TestSettingsOutOfReach(t *testing.T) {
	for _, c := range []struct {
		t    Transform
		says string
	}{
		{Transform{Resize: 1_000_000}, "is 1000000: an image would take 16000000000000 bytes; at most 1073741824 are taken, so give 8192 or less"},
		{Transform{Resize: 1 << 62}, "an image would take 9223372036854775807 bytes"},
		{Transform{Crop: 1_000_000}, "is 1000000: an image would take 12000000000000 bytes"},
		{Transform{Resize: 1_000_000, Channels: 1}, "an image would take 8000000000000 bytes"},
	} {
		faulttest.Refused(t, c.t.Validate(), c.says)
	}
	for _, side := range []int{8192, 8193} {
		if err := (Transform{Resize: side}).Validate(); (err == nil) != (side == 8192) {
			t.Errorf("resize=%d: %v", side, err)
		}
	}
	d := open(t, &Folder{Root: write(t, photos(t)), OnError: Fail}, All)
	l := loader(t, d, Transform{Resize: 8192}, LoaderOptions{})
	for _, err := range l.Batches(context.Background(), 0, [][]int{{0}, make([]int, 1000)}) {
		faulttest.Refused(t, err, "a batch of 1000 images of 3 × 8192 × 8192 numbers takes 805306368000 bytes")
	}
}

// TestCopiesOutOfReach: images that only to list would take all memory.
func TestCopiesOutOfReach(t *testing.T) {
	g, err := New("glyphs")
	if err != nil {
		t.Fatal(err)
	}
	glyphs := g.(*Glyphs)
	for _, copies := range []int{1_000_000_000, 1<<63 - 1} {
		glyphs.Copies = copies
		var err error
		if got := allocatedBy(func() { _, err = glyphs.Open(All) }); got > 32<<20 { // the fonts
			t.Errorf("%d bytes allocated", got)
		}
		faulttest.Refused(t, err, "copies", fmt.Sprint("is ", copies, ": of 2 sizes they would take "), "bytes to list", "so give ")
	}
}

// FuzzArchive lists an archive and decodes what it says are images.
func FuzzArchive(f *testing.F) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		var out bytes.Buffer
		z := zip.NewWriter(&out)
		for _, name := range []string{"a/1.png", "b/2.jpg", "b/note.txt"} {
			w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
			if err != nil {
				f.Fatal(err)
			}
			if _, err := w.Write(pngHeader(f, 4, 4, 8, 0, 0, make([]byte, 20))); err != nil {
				f.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(out.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		z, err := openZip("fuzz.zip", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		tree := &tree{FS: z, name: "fuzz.zip", join: ":", archive: io.NopCloser(nil), most: 1 << 20}
		items, err := tree.classes(tree.top(), 1)
		if err != nil {
			return
		}
		for i := range items[:min(len(items), 20)] {
			if img, err := items[i].Image(); err == nil && img.Bounds().Empty() {
				t.Fatalf("%s: no pixels, and no error", items[i].Path)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(jpegHeader(16, 16, 3, true))
	f.Add(jpegHeader(16, 16, 4, false))
	f.Add(pngHeader(f, 4, 4, 8, 2, 1, make([]byte, 100)))
	f.Add([]byte("\x89PNG\r\n\x1a\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		const most = 16 << 20
		var width, height int
		err := decodeFor(content, most, func(w, h int) int64 { width, height = w, h; return 0 }, func(img image.Image) error {
			if img.Bounds().Dx() != width || img.Bounds().Dy() != height {
				t.Fatalf("the header says %d × %d, the picture has %v", width, height, img.Bounds())
			}
			return nil
		})
		if err == nil && width*height > most {
			t.Fatalf("%d × %d pixels within %d bytes", width, height, most)
		}
	})
}
