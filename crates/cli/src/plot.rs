//! Pictures: lines over time, as an SVG that can be read on a light and on a dark page.

use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A picture of lines over one pair of axes.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    /// How values are written along the axes.
    pub(crate) labels: [fn(f64) -> String; 2],
    /// Whether y grows by factors.
    pub(crate) log: bool,
    /// A stretch of x to be set off.
    pub(crate) band: Option<(f64, f64)>,
    pub(crate) lines: Vec<Line>,
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

const SIZE: (u32, u32) = (900, 480);
/// Stand-ins that the style sheet gives their colours, since a page may be light or dark.
const INK: RGBColor = RGBColor(1, 2, 3);
const GRID: RGBColor = RGBColor(4, 5, 6);
const BAND: RGBColor = RGBColor(7, 8, 9);
/// Told apart by people who see no red or green, on white and on black (Okabe and
/// Ito's set without its extremes).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(150, 150, 150),
];
const STYLE: &str = "<style>
text{font-family:system-ui,sans-serif}
[fill=\"#010203\"]{fill:#222}[stroke=\"#010203\"]{stroke:#222}
[fill=\"#040506\"]{fill:#ddd}[stroke=\"#040506\"]{stroke:#ddd}
[fill=\"#070809\"]{fill:#eee}
@media (prefers-color-scheme:dark){
[fill=\"#010203\"]{fill:#ddd}[stroke=\"#010203\"]{stroke:#ddd}
[fill=\"#040506\"]{fill:#444}[stroke=\"#040506\"]{stroke:#444}
[fill=\"#070809\"]{fill:#2a2a2a}
}
</style>
";

type Failed = DrawingAreaErrorKind<std::io::Error>;

impl Plot {
    /// The picture as a document.
    pub(crate) fn svg(&self) -> String {
        let mut text = String::new();
        self.draw(&mut text).expect("drawing into a string does not fail");
        styled(text)
    }

    fn draw(&self, into: &mut String) -> Result<(), Failed> {
        let area = SVGBackend::with_string(into, SIZE).into_drawing_area();
        let area =
            area.margin(10, 0, 0, 0).titled(&self.title, ("sans-serif", 22).into_font().color(&INK))?;
        let (legend, area) = area.split_vertically(LEGEND);
        draw_legend(&legend, (LEFT_OF_LINES, 2), self.lines.iter().map(|line| &line.name))?;
        let (x, y) = (self.extent(|point| point.0), self.extent(|point| point.1));
        let mut builder = ChartBuilder::on(&area);
        builder.margin(12).margin_right(30).x_label_area_size(48).y_label_area_size(LEFT_OF_LINES);
        if self.log {
            let mut chart = builder.build_cartesian_2d(x.0..x.1, (y.0.max(1e-9)..y.1 * 1.5).log_scale())?;
            self.mesh_and_lines(&mut chart, y)?;
        } else {
            let mut chart = builder.build_cartesian_2d(x.0..x.1, 0.0..y.1 * 1.05)?;
            self.mesh_and_lines(&mut chart, y)?;
        }
        area.present()
    }

    fn mesh_and_lines<'a, Y>(
        &self,
        chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>,
        (_, top): (f64, f64),
    ) -> Result<(), Failed>
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        if let Some((from, to)) = self.band {
            let corners = [(from, 0.0), (to, top * 2.0)];
            chart.draw_series([Rectangle::new(corners, BAND.filled())])?;
        }
        let text = ("sans-serif", 14).into_font().color(&INK);
        chart
            .configure_mesh()
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(text.clone())
            .axis_desc_style(text.clone())
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&|value| self.labels[0](*value))
            .y_label_formatter(&|value| self.labels[1](*value))
            .draw()?;
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
        }
        Ok(())
    }

    fn extent(&self, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let values = self.lines.iter().flat_map(|line| &line.points).map(of);
        let (low, high) =
            values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if low < high { (low, high) } else { (low.min(0.0), high.max(1.0)) }
    }
}

/// Bars from left to right.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) title: String,
    /// What the values of each group are.
    pub(crate) legend: Vec<String>,
    /// Whether the axis grows by factors; otherwise it begins at 0, and lengths can be compared.
    pub(crate) log: bool,
    /// How values are written behind their bars.
    pub(crate) label: fn(f64) -> String,
    pub(crate) groups: Vec<Group>,
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// One for each entry of the legend, more than 0.
    pub(crate) values: Vec<f64>,
}

/// The height of a bar, whose value is written behind it; of the legend; and of
/// the rest of a picture of bars.
const BAR: u32 = 13;
const LEGEND: u32 = 24;
const FRAME: u32 = 92;
/// Where axes begin: right of the groups' names, or of the values along the axis.
const LEFT: u32 = 190;
const LEFT_OF_LINES: u32 = 84;
/// As wide as a letter gets on average, for what is set beside a text.
const LETTER: usize = 7;

/// Several pictures of bars, one below the other.
pub(crate) fn bars_svg(pictures: &[Bars]) -> String {
    let heights: Vec<u32> = pictures.iter().map(Bars::height).collect();
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (SIZE.0, heights.iter().sum())).into_drawing_area();
    let mut rest = area;
    for (picture, height) in pictures.iter().zip(heights) {
        let (this, below) = rest.split_vertically(height);
        picture.draw(&this).expect("drawing into a string does not fail");
        rest = below;
    }
    rest.present().expect("drawing into a string does not fail");
    drop(rest);
    styled(text)
}

impl Bars {
    fn rows(&self) -> u32 {
        u32::try_from(self.groups.len() * (self.legend.len() + 1)).unwrap_or(u32::MAX / BAR)
    }

    fn height(&self) -> u32 {
        FRAME + self.legend_height() + BAR * self.rows()
    }

    /// What a single series shows is said by the title.
    fn legend_height(&self) -> u32 {
        if self.legend.len() > 1 { LEGEND } else { 0 }
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Failed> {
        let area =
            area.margin(10, 0, 0, 0).titled(&self.title, ("sans-serif", 19).into_font().color(&INK))?;
        let (legend, area) = area.split_vertically(self.legend_height());
        if self.legend.len() > 1 {
            draw_legend(&legend, (LEFT, 4), &self.legend)?;
        }
        let values = || self.groups.iter().flat_map(|group| &group.values).copied();
        let low = values().fold(f64::MAX, f64::min).max(1e-3);
        let high = values().fold(low, f64::max);
        let rows = f64::from(self.rows())..0.0;
        let mut builder = ChartBuilder::on(&area);
        builder.margin(8).margin_right(70).x_label_area_size(28).y_label_area_size(LEFT);
        if self.log {
            // From a power of ten, so that bars begin where an axis does, and one by which the lowest is
            // seen.
            let from = 10f64.powf((low / 2.0).log10().floor());
            let mut chart = builder.build_cartesian_2d((from..high * 1.5).log_scale(), rows)?;
            self.mesh_and_bars(&area, &mut chart)
        } else {
            let mut chart = builder.build_cartesian_2d(0.0..high * 1.1, rows)?;
            self.mesh_and_bars(&area, &mut chart)
        }
    }

    fn mesh_and_bars<'a, X>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, RangedCoordf64>>,
    ) -> Result<(), Failed>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let from = chart.x_range().start;
        let text = ("sans-serif", 15).into_font().color(&INK);
        let mut mesh = chart.configure_mesh();
        mesh.axis_style(INK).bold_line_style(GRID).light_line_style(TRANSPARENT).disable_y_mesh();
        mesh.y_labels(0).label_style(text.clone()).x_label_formatter(&|value| label(*value)).draw()?;
        for (series, colour) in (0..self.legend.len()).zip(COLOURS.iter().cycle()) {
            chart.draw_series(self.groups.iter().zip(0..).map(|(group, index)| {
                let top = self.top(index, series);
                Rectangle::new([(from, top), (group.values[series].max(from), top + 0.85)], colour.filled())
            }))?;
        }
        self.name_groups(area, chart, &text)
    }

    /// Where a bar begins, in rows from above: a free one between groups.
    fn top(&self, group: u32, series: usize) -> f64 {
        f64::from(group) * (self.legend.len() + 1) as f64 + series as f64 + 0.5
    }

    /// Each group's name at its middle, and each bar's value behind it.
    fn name_groups<X: Ranged<ValueType = f64>>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        chart: &ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
        text: &TextStyle<'_>,
    ) -> Result<(), Failed> {
        let (left, top) = area.get_base_pixel();
        let at = |x, y| {
            let (x, y) = chart.as_coord_spec().translate(&(x, y));
            (x - left, y - top)
        };
        let before = text.pos(Pos::new(HPos::Right, VPos::Center));
        let behind = ("sans-serif", 13).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        let start = chart.x_range().start;
        for (group, index) in self.groups.iter().zip(0..) {
            let (x, y) = at(start, self.top(index, 0) + self.legend.len() as f64 / 2.0);
            area.draw(&Text::new(group.name.clone(), (x - 8, y), before.clone()))?;
            for (series, value) in group.values.iter().enumerate() {
                let (x, y) = at(value.max(start), self.top(index, series) + 0.425);
                area.draw(&Text::new((self.label)(*value), (x + 6, y), behind.clone()))?;
            }
        }
        Ok(())
    }
}

/// In a line above what it explains, where it hides nothing; each sign so much to
/// either side of the line's middle.
fn draw_legend<'a>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    (left, half): (u32, i32),
    names: impl IntoIterator<Item = &'a String>,
) -> Result<(), Failed> {
    let (mut x, y) = (left.cast_signed() + 8, LEGEND.cast_signed() / 2);
    let text = ("sans-serif", 15).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    for (name, colour) in names.into_iter().zip(COLOURS.iter().cycle()) {
        area.draw(&Rectangle::new([(x, y - half), (x + 14, y + half)], colour.filled()))?;
        area.draw(&Text::new(name.clone(), (x + 20, y), text.clone()))?;
        x += 20 + i32::try_from((name.chars().count() + 3) * LETTER).unwrap_or_default();
    }
    Ok(())
}

/// Puts the style sheet after the opening tag, where it belongs.
fn styled(mut text: String) -> String {
    let body = text.find('>').and_then(|first| text[first + 1..].find('<').map(|next| first + 1 + next));
    text.insert_str(body.expect("a document has a body"), STYLE);
    text
}

/// 1200000 as 1.2 M.
pub(crate) fn label(value: f64) -> String {
    match value.abs() {
        1e9.. => format!("{} G", value / 1e9),
        1e6.. => format!("{} M", value / 1e6),
        1e3.. => format!("{} k", value / 1e3),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_its_lines_and_a_style_for_dark_pages() {
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(0.0, 1.0), (1.0, 100.0)] };
        for log in [false, true] {
            let plot = Plot {
                title: "T".to_owned(),
                x: "x".to_owned(),
                y: "y".to_owned(),
                labels: [label; 2],
                log,
                band: Some((0.2, 0.4)),
                lines: vec![line("one"), line("two")],
            };
            let svg = plot.svg();
            assert!(svg.starts_with("<svg") && svg.contains("prefers-color-scheme:dark"));
            assert_eq!(svg.matches("\"#0072B2\"").count(), 2, "a line and its sign in the legend");
            assert!(["\none\n", "\ntwo\n", "\nT\n", "\nx\n"].iter().all(|text| svg.contains(text)), "{svg}");
        }
    }

    #[test]
    fn bars_have_a_name_and_a_legend_where_there_are_several() {
        let group = |name: &str, values: &[f64]| Group { name: name.to_owned(), values: values.to_vec() };
        let one = Bars {
            title: "One".to_owned(),
            legend: vec!["only".to_owned()],
            log: true,
            label,
            groups: vec![group("a", &[5.0]), group("b", &[50_000.0])],
        };
        let legend = vec!["first".to_owned(), "second".to_owned()];
        let two = Bars {
            title: "Two".to_owned(),
            legend,
            log: false,
            label,
            groups: vec![group("c", &[1.0, 2.0])],
        };
        let svg = bars_svg(&[one, two]);
        let has = |text: &str| svg.contains(&format!("\n{text}\n"));
        assert!(
            ["a", "b", "50 k", "c", "2", "first", "second", "One", "Two"].iter().all(|text| has(text)),
            "{svg}"
        );
        assert!(!has("only") && svg.contains("prefers-color-scheme:dark"), "{svg}");
    }
}
