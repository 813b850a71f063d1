package data

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // the two formats that are read
	_ "image/png"
	"io"
	"io/fs"

	"golang.org/x/sync/semaphore"

	"roadmap/pkg/config"
	"roadmap/pkg/files"
)

// What decoding may take. A picture's header says how much memory it will need;
// one that needs more than its limit is refused, and those that are decoded at
// the same time, by whatever loader, share a budget: memory is the process's,
// so the budget is, too. It decides when an image is decoded, never how.
const (
	defaultImage  = 1 << 30   // to decode and resize one picture: 100 megapixels and more
	mostImage     = 1 << 40   // that the limit can be set to
	decodingBytes = 1 << 30   // for all pictures in work; a larger one has it to itself
	contentBytes  = 256 << 20 // for all files read and not decoded yet; likewise
	mostSide      = 1 << 28   // pixels: beyond, golang.org/x/image/draw counts past int32
)

var (
	decoding = newBudget(decodingBytes)
	contents = newBudget(contentBytes)
)

// budget is bytes that goroutines share.
type budget struct {
	bytes     int64
	semaphore *semaphore.Weighted
}

func newBudget(bytes int64) *budget { return &budget{bytes, semaphore.NewWeighted(bytes)} }

// take waits for so many bytes, or for all of them if it is more, and returns
// how to give them back. Nobody who holds bytes of a budget may wait for more
// of it.
func (b *budget) take(bytes int64) (giveBack func()) {
	n := min(max(bytes, 0), b.bytes)
	_ = b.semaphore.Acquire(context.Background(), n) // fails by its context alone
	return func() { b.semaphore.Release(n) }
}

// imageLimit is the limit that a setting means; 0: the default.
func imageLimit(setting config.Bytes) int64 { return cmp.Or(int64(setting), defaultImage) }

// checkMaxImage refuses a limit that means nothing.
func checkMaxImage(setting config.Bytes) error {
	if setting < 0 || setting > mostImage {
		return config.Invalid("max_image", "is %d bytes; give up to 1TiB, or 0 for 1GiB", int64(setting))
	}
	return nil
}

// bounded is a Source that knows what its picture takes before it decodes it.
type bounded interface {
	// use decodes the picture, hands it to f, and counts its memory as taken
	// until f is done. more, unless nil, is the memory that f will take besides,
	// by the picture's width and height.
	use(more func(width, height int) int64, f func(image.Image) error) error
}

// use decodes the image of any source for f.
func use(s Source, more func(width, height int) int64, f func(image.Image) error) error {
	if b, ok := s.(bounded); ok {
		return b.use(more, f)
	}
	img, err := s.Image()
	if err != nil {
		return err
	}
	return f(img)
}

// encoded is a picture in a file: how to open it, and the limit of what it may
// take.
type encoded struct {
	open func() (fs.File, error)
	most int64
}

// image decodes the picture; what becomes of its memory then is not counted.
func (e encoded) image() (img image.Image, err error) {
	err = e.use(nil, func(decoded image.Image) error {
		img = decoded
		return nil
	})
	return img, err
}

func (e encoded) use(more func(width, height int) int64, f func(image.Image) error) error {
	content, release, err := e.read()
	if err != nil {
		return err
	}
	defer release()
	return decodeFor(content, e.most, more, f)
}

// read reads the file. release gives the bytes back to the budget.
func (e encoded) read() (content []byte, release func(), err error) {
	file, err := e.open()
	if err != nil {
		return nil, nil, withoutPath(err)
	}
	defer file.Close() // only read
	info, err := file.Stat()
	if err != nil {
		return nil, nil, withoutPath(err)
	}
	most := e.most / 4
	size := info.Size()
	if size < 0 || size > most { // an archive may say anything; beyond 2^63 it is negative
		return nil, nil, fmt.Errorf("the file is said to be of %d bytes; at most %d are read, a quarter of data.max_image", uint64(size), most)
	}
	release = contents.take(size)
	content, err = files.ReadAll(file, size, most)
	switch {
	case err == nil:
		return content, release, nil
	case errors.Is(err, zip.ErrChecksum):
		err = fmt.Errorf("the archive is damaged there: what is read has not the CRC-32 that was written")
	case errors.Is(err, zip.ErrFormat), errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("the archive is damaged there (%w)", err)
	}
	release()
	return nil, nil, withoutPath(err)
}

// decodeFor decodes a PNG or JPEG file for f; see bounded.
func decodeFor(content []byte, most int64, more func(width, height int) int64, f func(image.Image) error) error {
	if len(content) == 0 {
		return errors.New("the file is empty")
	}
	header, format, err := image.DecodeConfig(bytes.NewReader(content))
	if errors.Is(err, image.ErrFormat) {
		return errors.New("neither PNG nor JPEG")
	}
	if err != nil {
		return damaged(err)
	}
	need := decodedBytes(format, header.Width, header.Height, content)
	if need <= most && more != nil {
		need = saturate(need, more(header.Width, header.Height))
	}
	if need > most {
		return fmt.Errorf("%s of %d × %d pixels takes %d bytes to decode and resize; at most %d may be taken (data.max_image)",
			format, header.Width, header.Height, need, most)
	}
	defer decoding.take(need)()
	img, _, err := image.Decode(bytes.NewReader(content))
	if err != nil {
		return damaged(err)
	}
	if img.Bounds().Empty() {
		return fmt.Errorf("%s without pixels", format)
	}
	return f(img)
}

// damaged says in words what the decoders call bad data or an early end.
func damaged(err error) error { return fmt.Errorf("the file is cut off or damaged (%w)", err) }

// saturate is x + y, or the largest number where that overflows; both are 0 or
// more.
func saturate(x, y int64) int64 {
	if sum := x + y; sum >= 0 {
		return sum
	}
	return 1<<63 - 1
}

// times is the product of numbers of 0 or more, or the largest number where it
// overflows.
func times(numbers ...int64) int64 {
	product := int64(1)
	for _, n := range numbers {
		if n == 0 {
			return 0
		}
		if product > (1<<63-1)/n {
			return 1<<63 - 1
		}
		product *= n
	}
	return product
}

// decodedBytes is at least what Go's decoder allocates for a picture.
func decodedBytes(format string, width, height int, content []byte) int64 {
	switch {
	case width > mostSide || height > mostSide:
		return 1<<63 - 1
	case format == "png":
		return pngBytes(int64(width), int64(height), content)
	case format == "jpeg":
		return jpegBytes(int64(width), int64(height), content)
	}
	return times(int64(width), int64(height), 16) // 8 bytes a pixel, twice
}

// pngBytes: the pixels of the type that image/png makes of the file's, two raw
// rows, and of an interlaced picture the seven passes, which have as many pixels
// together as the picture.
func pngBytes(width, height int64, content []byte) int64 {
	if len(content) < 29 {
		return 1<<63 - 1
	}
	depth, color, interlaced := int64(content[24]), content[25], content[28] == 1
	channels := map[byte]int64{0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
	pixel := int64(4)
	switch {
	case color == 3, color == 0 && depth <= 8 && !pngTransparent(content):
		pixel = 1
	case color == 0 && depth == 16 && !pngTransparent(content):
		pixel = 2
	case depth == 16:
		pixel = 8
	}
	all := times(width, height, pixel)
	if interlaced {
		all = saturate(all, all)
	}
	return saturate(all, 2*(1+(width*channels*depth+7)/8))
}

// pngTransparent reports whether a chunk tRNS comes before the pixels.
func pngTransparent(content []byte) bool {
	for at := 8; at+8 <= len(content); {
		length := int64(binary.BigEndian.Uint32(content[at:]))
		switch string(content[at+4 : at+8]) {
		case "tRNS":
			return true
		case "IDAT":
			return false
		}
		if length > int64(len(content)-at) {
			return false
		}
		at += 12 + int(length)
	}
	return false
}

// jpegBytes: the planes of image/jpeg, rounded up to whole blocks of 32 pixels;
// the coefficients of a progressive picture, 4 bytes each; and the picture that
// planes of red, green and blue, or of four inks, are put together to.
func jpegBytes(width, height int64, content []byte) int64 {
	components, progressive, joined := jpegFrame(content)
	pixel := int64(components)
	if progressive {
		pixel += 4 * int64(components)
	}
	if joined || components == 4 {
		pixel += 4
	}
	round := func(n int64) int64 { return (n + 31) &^ 31 }
	return times(round(width), round(height), pixel)
}

// jpegFrame reads the markers up to the picture's frame header; joined says that
// its three planes may be red, green and blue.
func jpegFrame(content []byte) (components int, progressive, joined bool) {
	components, joined = 4, false
	adobe := byte(1)
	for at := 2; at+4 <= len(content); {
		if content[at] != 0xff {
			at++
			continue
		}
		marker := content[at+1]
		if marker == 0xff || marker == 0 || marker == 1 || marker >= 0xd0 && marker <= 0xd9 {
			at++ // filling, or a marker without a segment
			continue
		}
		length := int(binary.BigEndian.Uint16(content[at+2:]))
		segment := content[at+4 : min(len(content), max(at+4, at+2+length))]
		switch {
		case marker == 0xee && len(segment) >= 12 && string(segment[:5]) == "Adobe":
			adobe = segment[11]
		case marker >= 0xc0 && marker <= 0xc2 && len(segment) >= 6:
			components, progressive = min(int(segment[5]), 4), marker == 0xc2
			joined = components == 3 && len(segment) >= 15 && segment[6] == 'R' && segment[9] == 'G' && segment[12] == 'B'
		case marker == 0xda:
			return components, progressive, joined || components == 3 && adobe == 0
		}
		at += 2 + max(length, 2)
	}
	return components, progressive, joined || components == 3 && adobe == 0
}
