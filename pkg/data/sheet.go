package data

import (
	"bytes"
	"encoding/base64"
	"html/template"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"sync"

	"golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// Sheet is a contact sheet: images in columns, one a class.
type Sheet struct {
	Title   string
	Side    int // of the square in which an image is shown, in pixels
	Columns []Column
}

// Column is the images of one class, the first on top.
type Column struct {
	Name  string
	Cells []Cell
}

// Cell is one image.
type Cell struct {
	Path    string
	Note    string          // "query", "gallery", or what is wrong with the image
	Picture image.Image     // nil: it could not be read
	Box     image.Rectangle // drawn, if it is not empty: the part that counts
}

// Classes adds columns for the first classes of the dataset, each with its
// first images, as they are in the files, boxes drawn. Images that cannot be
// read are shown as such.
func (s *Sheet) Classes(d *Dataset, classes, images int) {
	at := map[int64]int{}
	for i := range d.Items {
		it := &d.Items[i]
		column, known := at[it.Label]
		if !known {
			if len(s.Columns) == classes {
				continue
			}
			column, at[it.Label] = len(s.Columns), len(s.Columns)
			s.Columns = append(s.Columns, Column{Name: it.Class})
		}
		if cells := &s.Columns[column].Cells; len(*cells) < images {
			*cells = append(*cells, cellOf(it))
		}
	}
}

func cellOf(it *Item) Cell {
	cell := Cell{Path: it.Path, Box: it.Box, Note: map[Role]string{QueryOnly: "query", GalleryOnly: "gallery"}[it.Role]}
	img, err := it.Source.Image()
	if err != nil {
		cell.Note = err.Error()
		return cell
	}
	cell.Picture = img
	return cell
}

// Batch adds columns for a batch of the dataset as a network sees it, cropped
// and augmented: images of a class that follow each other make a column.
func (s *Sheet) Batch(d *Dataset, t Transform, b *Batch) {
	size := b.Shape[1] * b.Shape[2] * b.Shape[3]
	for i, row := range b.Items {
		it := &d.Items[row]
		if i == 0 || b.Labels[i] != b.Labels[i-1] {
			s.Columns = append(s.Columns, Column{Name: it.Class})
		}
		last := &s.Columns[len(s.Columns)-1]
		last.Cells = append(last.Cells, Cell{Path: it.Path, Picture: t.picture(b.Pixels[i*size:(i+1)*size], b.Shape)})
	}
}

// picture undoes the normalising of an image.
func (t Transform) picture(pixels []float32, shape [4]int) image.Image {
	img := image.NewRGBA(image.Rect(0, 0, shape[3], shape[2]))
	plane := shape[2] * shape[3]
	for i := range plane {
		c := color.RGBA{A: 255}
		for channel, to := range []*uint8{&c.R, &c.G, &c.B} {
			channel = min(channel, shape[1]-1) // grey is all three
			x := float64(pixels[channel*plane+i])*t.std().at(channel, 1) + t.Mean.at(channel, 0)
			*to = uint8(max(0, min(255, x*255+0.5)))
		}
		img.SetRGBA(i%shape[3], i/shape[3], c)
	}
	return img
}

// Measures of a sheet, in pixels.
const (
	sheetGap  = 6
	sheetText = 16  // height of a line
	sheetWide = 120 // most images beside each other, times 16 pixels
)

var (
	sheetPaper = color.RGBA{255, 255, 255, 255}
	sheetInk   = color.RGBA{40, 40, 40, 255}
	sheetMark  = color.RGBA{220, 30, 30, 255}
)

// thumbnail draws a cell's image, box and note into a square.
func (s *Sheet) thumbnail(c Cell) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, s.Side, s.Side))
	draw.Draw(img, img.Rect, image.NewUniform(color.RGBA{235, 235, 235, 255}), image.Point{}, draw.Src)
	if c.Picture == nil {
		caption(img, 2, s.Side/2, "not readable", sheetMark)
		return img
	}
	b := c.Picture.Bounds()
	scale := float64(s.Side) / float64(max(b.Dx(), b.Dy()))
	to := image.Rect(0, 0, max(1, int(float64(b.Dx())*scale)), max(1, int(float64(b.Dy())*scale)))
	to = to.Add(image.Pt((s.Side-to.Dx())/2, (s.Side-to.Dy())/2))
	draw.BiLinear.Scale(img, to, c.Picture, b, draw.Over, nil)
	if !c.Box.Empty() {
		at := func(p image.Point) image.Point {
			return to.Min.Add(image.Pt(int(float64(p.X)*scale), int(float64(p.Y)*scale)))
		}
		frame(img, image.Rectangle{at(c.Box.Min), at(c.Box.Max)}.Intersect(img.Rect), sheetMark)
	}
	return img
}

// frame draws the edge of a box, two pixels wide.
func frame(img *image.RGBA, box image.Rectangle, c color.Color) {
	ink := image.NewUniform(c)
	for _, edge := range []image.Rectangle{
		{box.Min, image.Pt(box.Max.X, box.Min.Y+2)}, {image.Pt(box.Min.X, box.Max.Y-2), box.Max},
		{box.Min, image.Pt(box.Min.X+2, box.Max.Y)}, {image.Pt(box.Max.X-2, box.Min.Y), box.Max},
	} {
		draw.Draw(img, edge.Intersect(box), ink, image.Point{}, draw.Src)
	}
}

// caption draws a line of text, cut to the image.
func caption(img *image.RGBA, x, y int, text string, c color.Color) {
	d := font.Drawer{Dst: img, Src: image.NewUniform(c), Face: sheetFace(), Dot: fixed.P(x, y)}
	d.DrawString(text)
}

// sheetFace is the face that sheets are lettered in.
var sheetFace = sync.OnceValue(func() font.Face {
	parsed, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return basicfont.Face7x13 // which has ASCII alone
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: 12, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		return basicfont.Face7x13
	}
	return face
})

// fit shortens a name to the width of a column.
func (s *Sheet) fit(name string) string {
	letters := []rune(name)
	fits := func(text string) bool { return font.MeasureString(sheetFace(), text).Ceil() <= s.Side }
	if fits(name) {
		return name
	}
	for len(letters) > 1 && !fits(string(letters)+"…") {
		letters = letters[:len(letters)-1]
	}
	return string(letters) + "…"
}

// WritePNG draws the sheet; columns that do not fit beside each other go below.
func (s *Sheet) WritePNG(w io.Writer) error {
	across := max(1, min(len(s.Columns), sheetWide*16/(s.Side+sheetGap)))
	var heights []int // of the bands
	for i := 0; i < len(s.Columns); i += across {
		rows := 0
		for _, c := range s.Columns[i:min(i+across, len(s.Columns))] {
			rows = max(rows, len(c.Cells))
		}
		heights = append(heights, sheetText+rows*(s.Side+sheetText+sheetGap))
	}
	total := sheetText + 2*sheetGap
	for _, h := range heights {
		total += h
	}
	img := image.NewRGBA(image.Rect(0, 0, max(sheetGap+across*(s.Side+sheetGap), font.MeasureString(sheetFace(), s.Title).Ceil()+2*sheetGap), total))
	draw.Draw(img, img.Rect, image.NewUniform(sheetPaper), image.Point{}, draw.Src)
	caption(img, sheetGap, sheetText, s.Title, sheetInk)
	y := sheetText + 2*sheetGap
	for band, height := range heights {
		for i, column := range s.Columns[band*across : min((band+1)*across, len(s.Columns))] {
			x := sheetGap + i*(s.Side+sheetGap)
			caption(img, x, y+sheetText-4, s.fit(column.Name), sheetInk)
			for row, cell := range column.Cells {
				top := y + sheetText + row*(s.Side+sheetText+sheetGap)
				at := image.Rect(x, top, x+s.Side, top+s.Side)
				draw.Draw(img, at, s.thumbnail(cell), image.Point{}, draw.Src)
				caption(img, x, top+s.Side+sheetText-4, s.fit(cell.Note), sheetMark)
			}
		}
		y += height
	}
	return png.Encode(w, img)
}

// sheetPage is the sheet as one page that needs no other file.
var sheetPage = template.Must(template.New("sheet").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title><style>
body { font: 14px sans-serif; margin: 16px } .sheet { display: flex; flex-wrap: wrap; gap: 12px }
.column { width: {{.Side}}px } h2 { font-size: 14px; overflow-wrap: anywhere; margin: 4px 0 } figure { margin: 0 0 8px } img { display: block }
figcaption { font-size: 11px; overflow-wrap: anywhere; color: #666 } b { color: #c22 }
</style></head><body><h1>{{.Title}}</h1><div class="sheet">
{{range .Columns}}<div class="column"><h2>{{.Name}}</h2>
{{range .Cells}}<figure><img src="{{.Image}}" width="{{$.Side}}" height="{{$.Side}}" alt=""><figcaption>{{.Path}}{{if .Note}} <b>{{.Note}}</b>{{end}}</figcaption></figure>
{{end}}</div>
{{end}}</div></body></html>
`))

// WriteHTML writes the sheet as a page that needs no other file.
func (s *Sheet) WriteHTML(w io.Writer) error {
	type cell struct {
		Cell
		Image template.URL
	}
	type column struct {
		Name  string
		Cells []cell
	}
	page := struct {
		Title   string
		Side    int
		Columns []column
	}{Title: s.Title, Side: s.Side}
	for _, c := range s.Columns {
		drawn := column{Name: c.Name}
		for _, from := range c.Cells {
			var content bytes.Buffer
			if err := jpeg.Encode(&content, s.thumbnail(from), &jpeg.Options{Quality: 90}); err != nil {
				return err
			}
			url := "data:image/jpeg;base64," + base64.StdEncoding.EncodeToString(content.Bytes())
			drawn.Cells = append(drawn.Cells, cell{from, template.URL(url)})
		}
		page.Columns = append(page.Columns, drawn)
	}
	return sheetPage.Execute(w, page)
}
