//! SVG pictures for light and dark pages: lines over time, and bars.

use std::fmt::Write as _;

/// A line chart with a logarithmic y axis.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The title above the chart.
    pub title: String,
    /// The label of the x axis.
    pub x: String,
    /// The label of the y axis.
    pub y: String,
    /// Formats the values along the axes.
    pub labels: [fn(f64) -> String; 2],
    /// The lines, which have different colours.
    pub lines: Vec<Line>,
}

/// A line of a [`Plot`].
#[derive(Clone, Debug)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// Pairs of x and y.
    pub points: Vec<(f64, f64)>,
}

/// A chart of horizontal bars.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title above the chart.
    pub title: String,
    /// The names of the values in each group.
    pub legend: Vec<String>,
    /// Whether the axis is logarithmic. A linear axis starts at 0, so that lengths can be compared.
    pub log: bool,
    /// Formats the value after its bar.
    pub label: fn(f64) -> String,
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
}

/// The bars of one subject, side by side.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name next to the bars.
    pub name: String,
    /// One value above 0 per legend entry.
    pub values: Vec<f64>,
}

const STYLE: &str = include_str!("style.css");
/// Okabe and Ito's palette without yellow, and with grey instead of black: colours that people with a colour
/// vision deficiency can distinguish, on white and on black.
const COLOURS: [&str; 7] = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#969696"];
const WIDTH: f64 = 900.0;
/// The height of a bar, and of the frame around a bar chart.
const BAR: f64 = 13.0;
const FRAME: f64 = 104.0;
/// The left, top, right and bottom of a line chart's axes.
const AXES: [f64; 4] = [84.0, 76.0, 870.0, 420.0];
/// The average width of a letter, to place legend entries side by side.
const LETTER: usize = 8;

impl Plot {
    /// Returns the SVG document.
    pub fn svg(&self) -> String {
        let [left, top, right, bottom] = AXES;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let across = extent(points().map(|point| point.0));
        let (low, high) = extent(points().map(|point| point.1));
        let x = Axis { ends: across, places: (left, right), log: false };
        let y = Axis { ends: (low.max(1e-9), high * 1.5), places: (bottom, top), log: true };
        let mut svg = Svg::default();
        svg.text("title", WIDTH / 2.0, 26.0, &self.title);
        svg.legend(left, 44.0, self.lines.iter().map(|line| &line.name));
        for (value, place) in x.ticks() {
            svg.grid([place, top, place, bottom]);
            svg.text("middle", place, bottom + 18.0, &self.labels[0](value));
        }
        for (value, place) in y.ticks() {
            svg.grid([left, place, right, place]);
            svg.text("end", left - 6.0, place + 5.0, &self.labels[1](value));
        }
        svg.text("middle", f64::midpoint(left, right), bottom + 42.0, &self.x);
        svg.text("start", left, top - 6.0, &self.y);
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let places = line.points.iter().map(|(at, value)| (x.place(*at), y.place(*value)));
            let points = places.map(|(x, y)| format!("{x:.1},{y:.1} "));
            svg.add(format_args!(
                "<polyline stroke=\"{colour}\" points=\"{}\"/>",
                points.collect::<String>()
            ));
        }
        svg.document(480.0)
    }
}

/// Returns several bar charts in one document, one below the other.
pub fn bars_svg(pictures: &[Bars]) -> String {
    let (mut svg, mut top) = (Svg::default(), 0.0);
    for picture in pictures {
        picture.draw(&mut svg, top);
        top += picture.height();
    }
    svg.document(top)
}

impl Bars {
    /// Returns the height of a group in bars, with one empty bar between groups.
    fn of_group(&self) -> f64 {
        self.legend.len() as f64 + 1.0
    }

    fn height(&self) -> f64 {
        FRAME + BAR * self.of_group() * self.groups.len() as f64
    }

    fn draw(&self, svg: &mut Svg, above: f64) {
        let (left, right, top) = (190.0, 810.0, above + FRAME - 36.0);
        let bottom = above + self.height() - 36.0;
        let (low, high) = extent(self.groups.iter().flat_map(|group| group.values.iter().copied()));
        // A logarithmic axis starts at a power of ten below the lowest value, so that the bar of a value
        // above 10^-4 is visible.
        let from = 10f64.powf((low.max(1e-3) / 2.0).log10().floor());
        let ends = if self.log { (from, high * 1.5) } else { (0.0, high * 1.1) };
        let x = Axis { ends, places: (left, right), log: self.log };
        svg.text("title", WIDTH / 2.0, above + 24.0, &self.title);
        // Show no legend for a single series, because the title names it.
        if self.legend.len() > 1 {
            svg.legend(left, above + 46.0, &self.legend);
        }
        for (value, place) in x.ticks() {
            svg.grid([place, top, place, bottom]);
            svg.text("middle", place, bottom + 18.0, &label(value));
        }
        let mut y = top + BAR / 2.0;
        for group in &self.groups {
            svg.text("end", left - 8.0, y + BAR * (self.of_group() - 1.0) / 2.0 + 5.0, &group.name);
            for (value, colour) in group.values.iter().zip(COLOURS.iter().cycle()) {
                let end = x.place(*value);
                svg.rect(&format!("fill=\"{colour}\""), left, y, end - left, BAR * 0.85);
                svg.text("start", end + 6.0, y + BAR * 0.85, &(self.label)(*value));
                y += BAR;
            }
            y += BAR;
        }
    }
}

/// SVG elements, each on its own lines.
#[derive(Default)]
struct Svg(String);

impl Svg {
    fn add(&mut self, shape: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{shape}").expect("a write to memory succeeds");
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.add(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">\n{text}\n</text>"));
    }

    fn rect(&mut self, fill: &str, x: f64, y: f64, width: f64, height: f64) {
        self.add(format_args!(
            "<rect {fill} x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
            width.max(0.0)
        ));
    }

    fn grid(&mut self, [from_x, from_y, to_x, to_y]: [f64; 4]) {
        self.add(format_args!("<path d=\"M{from_x:.1} {from_y:.1}L{to_x:.1} {to_y:.1}\"/>"));
    }

    /// Draws the legend in a line above the chart, where it covers nothing.
    fn legend<'a>(&mut self, left: f64, y: f64, names: impl IntoIterator<Item = &'a String>) {
        let mut x = left + 8.0;
        for (name, colour) in names.into_iter().zip(COLOURS.iter().cycle()) {
            self.rect(&format!("fill=\"{colour}\""), x, y - 8.0, 14.0, 8.0);
            self.text("start", x + 20.0, y, name);
            x += 20.0 + ((name.chars().count() + 3) * LETTER) as f64;
        }
    }

    fn document(self, height: f64) -> String {
        let size = format!("width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\"");
        format!(
            "<svg {size} xmlns=\"http://www.w3.org/2000/svg\">\n<style>\n{STYLE}</style>\n{}</svg>\n",
            self.0
        )
    }
}

/// Returns the minimum and the maximum. Equal values are moved apart.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low < high { (low, high) } else { (low.min(0.0), high.max(1.0)) }
}

/// Maps values between `ends` to positions between `places`.
struct Axis {
    ends: (f64, f64),
    places: (f64, f64),
    /// Whether the axis is logarithmic. Both ends of a logarithmic axis must be positive.
    log: bool,
}

impl Axis {
    fn scaled(&self, value: f64) -> f64 {
        if self.log { value.log10() } else { value }
    }

    /// Returns the position of a value, clamped to the ends.
    fn place(&self, value: f64) -> f64 {
        let ((low, high), (from, to)) = (self.ends, self.places);
        let (low, high, value) = (self.scaled(low), self.scaled(high), self.scaled(value));
        from + ((value - low) / (high - low)).clamp(0.0, 1.0) * (to - from)
    }

    /// Returns up to ten round values or powers of ten, with their positions.
    fn ticks(&self) -> Vec<(f64, f64)> {
        let (low, high) = (self.scaled(self.ends.0), self.scaled(self.ends.1));
        let rough = ((high - low) / 9.0).max(if self.log { 1.0 } else { 0.0 });
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|round| round * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let values = (0..10).map(|number| ((low / step).ceil() + f64::from(number)) * step);
        let values = values.filter(|value| *value <= high);
        let values = values.map(|value| if self.log { 10f64.powf(value) } else { value });
        values.map(|value| (value, self.place(value))).collect()
    }
}

/// Formats 1200000 as `1.2 M`.
fn label(value: f64) -> String {
    let (value, unit) = scaled(value);
    // Round, because sums of tenths have small errors.
    format!("{}{unit}", (value * 1e6).round() / 1e6)
}

/// Splits 1200000 into 1.2 and ` M`.
pub(crate) fn scaled(value: f64) -> (f64, &'static str) {
    match value.abs() {
        1e9.. => (value / 1e9, " G"),
        1e6.. => (value / 1e6, " M"),
        1e3.. => (value / 1e3, " k"),
        _ => (value, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_chart_has_its_lines_and_a_dark_style() {
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(1.0, 1.0), (4.0, 100.0)] };
        let plot = Plot {
            title: "T".to_owned(),
            x: "x".to_owned(),
            y: "y".to_owned(),
            labels: [label; 2],
            lines: vec![line("one"), line("two")],
        };
        let svg = plot.svg();
        assert!(svg.starts_with("<svg") && svg.contains("prefers-color-scheme:dark"));
        assert_eq!(svg.matches("\"#0072B2\"").count(), 2, "a line and its sign in the legend");
        assert_eq!(svg.replace(STYLE, ""), include_str!("golden/lines.svg"));
        assert!(["\none\n", "\ntwo\n", "\nT\n", "\nx\n"].iter().all(|text| svg.contains(text)), "{svg}");
    }

    #[test]
    fn bars_have_names_and_several_series_have_a_legend() {
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
        assert_eq!(svg.replace(STYLE, ""), include_str!("golden/bars.svg"));
        assert!(!has("only") && svg.contains("prefers-color-scheme:dark"), "{svg}");
    }

    #[test]
    fn extent_of_few_values_is_not_empty() {
        for (values, ends) in [
            (&[3.0, 1.0, 2.0][..], (1.0, 3.0)),
            (&[-2.0, -1.0], (-2.0, -1.0)),
            (&[5.0, 5.0], (0.0, 5.0)),
            (&[0.5], (0.0, 1.0)),
            (&[-3.0], (-3.0, 1.0)),
            (&[], (0.0, 1.0)),
        ] {
            assert_eq!(extent(values.iter().copied()), ends, "{values:?}");
        }
    }

    #[test]
    fn values_are_placed_between_the_ends() {
        let linear = Axis { ends: (10.0, 20.0), places: (100.0, 300.0), log: false };
        let places: Vec<_> = [10.0, 15.0, 20.0, 5.0, 25.0].map(|value| linear.place(value)).to_vec();
        assert_eq!(places, vec![100.0, 200.0, 300.0, 100.0, 300.0]);
        let upwards = Axis { ends: (1.0, 100.0), places: (400.0, 0.0), log: true };
        let places: Vec<_> = [1.0, 10.0, 100.0, 0.1].map(|value| upwards.place(value)).to_vec();
        assert_eq!(places, vec![400.0, 200.0, 0.0, 400.0]);
    }

    #[test]
    fn ticks_are_round_values() {
        let ticks = |ends, log| {
            let axis = Axis { ends, places: (0.0, 1.0), log };
            let (values, places): (Vec<_>, Vec<_>) = axis.ticks().into_iter().unzip();
            assert_eq!(places, values.iter().map(|value| axis.place(*value)).collect::<Vec<_>>());
            values
        };
        for (ends, log, values) in [
            ((0.0, 9.0), false, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0][..]),
            ((0.0, 10.0), false, &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
            ((0.0, 2000.0), false, &[0.0, 500.0, 1000.0, 1500.0, 2000.0]),
            ((13.0, 47.0), false, &[15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0]),
            ((1.0, 1e5), true, &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5]),
            ((0.5, 2e9), true, &[1.0, 100.0, 1e4, 1e6, 1e8]),
            ((1.0, 1e30), true, &[1.0, 1e5, 1e10, 1e15, 1e20, 1e25, 1e30]),
        ] {
            assert_eq!(ticks(ends, log), values, "{ends:?}");
        }
    }

    #[test]
    fn labels_have_no_rounding_errors() {
        let values = [0.0, 0.1 + 0.2, 1200.0, 1_200_000.0, -2.5e9, 1e-9];
        assert_eq!(values.map(label), ["0", "0.3", "1.2 k", "1.2 M", "-2.5 G", "0"]);
    }
}
