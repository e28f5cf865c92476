package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	height   = 14 * vg.Centimeter
	barWidth = 0.75 * vg.Centimeter
	axis     = 4 * vg.Centimeter // left of the first bar
	legend   = 9 * vg.Centimeter // right of the last
	small    = 9
	medium   = 12
	large    = 14
)

// least is the time that a bar of no height stands for, in milliseconds: a logarithm has no zero.
const least = 1.0

// level is where a time lies on the axis: a step for each tenfold.
func level(ms float64) float64 { return math.Log10(max(ms, least) / least) }

// colour of a way: greys for what is not sandboxd, colours for what is, told apart by the colour-blind too.
func colour(way int) color.Color {
	all := []color.Color{
		color.RGBA{R: 0x55, G: 0x55, B: 0x55, A: 0xff},
		color.RGBA{R: 0x8c, G: 0x8c, B: 0x8c, A: 0xff},
		color.RGBA{R: 0xc4, G: 0xc4, B: 0xc4, A: 0xff},
		color.RGBA{R: 0xf2, G: 0xb7, B: 0x6d, A: 0xff},
		color.RGBA{R: 0xe0, G: 0x7b, B: 0x1f, A: 0xff},
		color.RGBA{R: 0x5a, G: 0xa0, B: 0xd6, A: 0xff},
		color.RGBA{R: 0x0b, G: 0x4f, B: 0x8a, A: 0xff},
	}
	return all[way%len(all)]
}

// room is what all bars take, with a gap of one between groups.
func (f figure) room() vg.Length { return barWidth * vg.Length(len(f.Groups)*(len(f.Ways)+1)) }

func (f figure) draw(out string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.Title.TextStyle.Font.Size, p.Title.Padding = f.Title, large, vg.Points(8)
	p.Y.Label.Text, p.Y.Label.TextStyle.Font.Size = "p50 to a usable answer; ms, or s where it says so (log)", medium
	p.Y.Tick.Label.Font.Size, p.X.Tick.Label.Font.Size = medium, large
	p.Y.Tick.Marker = decades{}
	// The legend stands right of the last group. Its text begins at its mark, so that no font can push one over the other.
	p.Legend.Left, p.Legend.XOffs = true, f.room()+barWidth
	p.Legend.Top, p.Legend.TextStyle.Font.Size, p.Legend.ThumbnailWidth, p.Legend.Padding = true, medium, vg.Centimeter, vg.Points(2)
	highest := f.Floor
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.Gray{Y: 0xdd}
	p.Add(grid)
	for way := range f.Ways {
		top, err := f.bars(p, way)
		if err != nil {
			return err
		}
		highest = max(highest, top)
	}
	if f.Floor > 0 {
		line, err := f.floor()
		if err != nil {
			return err
		}
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s: %s", f.FloorName, short(f.Floor)), line)
	}
	p.NominalX(f.Groups...)
	p.X.Tick.Length = 0
	p.X.Min, p.X.Max = -0.5, float64(len(f.Groups))*float64((f.room()+legend)/f.room())-0.5
	p.Y.Min, p.Y.Max = 0, math.Ceil(level(highest))+0.5
	return save(p, axis+f.room()+legend, out)
}

// save writes the picture as SVG. Where the font is missing, another of the same widths is named.
func save(p *plot.Plot, width vg.Length, out string) error {
	picture, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return fmt.Errorf("make the picture: %w", err)
	}
	var b bytes.Buffer
	if _, err := picture.WriteTo(&b); err != nil {
		return fmt.Errorf("make the picture: %w", err)
	}
	svg := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	if err := os.WriteFile(out, svg, 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// bars adds one way's bars, with their times above, and gives the highest.
func (f figure) bars(p *plot.Plot, way int) (highest float64, err error) {
	levels := make(plotter.Values, len(f.Groups))
	labels := plotter.XYLabels{}
	for group, ms := range f.Millis[way] {
		if ms <= 0 {
			continue
		}
		levels[group], highest = level(ms), max(highest, ms)
		labels.XYs = append(labels.XYs, plotter.XY{X: float64(group), Y: levels[group]})
		labels.Labels = append(labels.Labels, short(ms))
	}
	chart, err := plotter.NewBarChart(levels, barWidth)
	if err != nil {
		return 0, fmt.Errorf("bars of %s: %w", f.Ways[way], err)
	}
	chart.Color, chart.LineStyle.Width = colour(way), 0
	chart.Offset = barWidth * vg.Length(float64(way)-float64(len(f.Ways)-1)/2)
	above, err := plotter.NewLabels(labels)
	if err != nil {
		return 0, fmt.Errorf("labels of %s: %w", f.Ways[way], err)
	}
	for i := range above.TextStyle {
		above.TextStyle[i] = text.Style{
			Color: color.Black, Font: font.From(plot.DefaultFont, small), XAlign: text.XCenter, YAlign: text.YBottom, Handler: plot.DefaultTextHandler,
		}
	}
	above.Offset = vg.Point{X: chart.Offset, Y: vg.Points(2)}
	p.Add(chart, above)
	p.Legend.Add(f.Ways[way], chart)
	return highest, nil
}

// floor is a dashed line across all groups.
func (f figure) floor() (*plotter.Line, error) {
	y := level(f.Floor)
	line, err := plotter.NewLine(plotter.XYs{{X: -0.5, Y: y}, {X: float64(len(f.Groups)) - 0.5, Y: y}})
	if err != nil {
		return nil, fmt.Errorf("line of the floor: %w", err)
	}
	line.LineStyle = draw.LineStyle{Color: color.RGBA{R: 0xb0, A: 0xff}, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(5), vg.Points(3)}}
	return line, nil
}

// short is a time in three characters or so.
func short(ms float64) string {
	switch {
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64)
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64)
	default:
		return strconv.FormatFloat(ms/1000, 'f', 1, 64) + "s"
	}
}

// decades ticks each tenfold, and marks the steps between.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for d := math.Floor(low); d <= high; d++ {
		ms := least * math.Pow(10, d)
		name := strconv.FormatFloat(ms, 'f', -1, 64) + " ms"
		if ms >= 1000 {
			name = strconv.FormatFloat(ms/1000, 'f', -1, 64) + " s"
		}
		ticks = append(ticks, plot.Tick{Value: d, Label: name})
		for step := 2.0; step < 10; step++ {
			ticks = append(ticks, plot.Tick{Value: d + math.Log10(step)})
		}
	}
	return ticks
}
