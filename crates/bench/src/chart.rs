//! Charts as SVG, lines over numbers or bars over names, and tables.

use std::fmt::Write;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use serde_json::Value;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
/// The space for labels: left, top, right, bottom.
const MARGINS: (f64, f64, f64, f64) = (56.0, 24.0, 16.0, 44.0);
const COLOURS: [&str; 6] = [
    "#1f6feb", "#d1570a", "#2f8f46", "#8250df", "#bf3989", "#57606a",
];
/// The number of intervals of a linear axis, at most.
const MOST_STEPS: f64 = 8.0;
/// The most powers of ten on an axis that has labels at twice and five times a power too.
const SHORT_LOG: f64 = 2.0;
/// The part of the space of a name that its bars fill.
const BAR_SHARE: f64 = 0.8;

/// The distances of values on an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Scale {
    /// Equal distances of equal differences, from zero or the least value on.
    Linear,
    /// Equal distances of equal ratios; labels are powers of this base.
    Log(f64),
}

/// An axis, with the quantity and unit of its values.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
}

impl Axis {
    pub(crate) fn new(label: &str, scale: Scale) -> Self {
        Axis {
            label: label.to_string(),
            scale,
        }
    }
}

/// The values of one line, or one bar of each name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// The position on the horizontal axis, or the index of the name; and the value.
    pub(crate) points: Vec<(f64, f64)>,
    /// The index of a point with a circle.
    pub(crate) circled: Option<usize>,
}

impl Series {
    /// Adds a point to the series of this name, which is created if it is missing.
    pub(crate) fn add(all: &mut Vec<Series>, name: &str, point: (f64, f64)) {
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series {
                name: name.to_string(),
                points: vec![point],
                circled: None,
            }),
        }
    }
}

/// A chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The names on the horizontal axis of a chart of bars; empty in a chart of lines.
    pub(crate) names: Vec<String>,
    /// Positions on the horizontal axis with a vertical line, and their labels.
    pub(crate) marks: Vec<(f64, String)>,
    pub(crate) series: Vec<Series>,
}

/// An axis with its range on the chart.
struct Range {
    scale: Scale,
    /// The ends of the values: of their logarithms, with a logarithmic scale.
    ends: (f64, f64),
    pixels: (f64, f64),
}

impl Range {
    fn new(
        scale: Scale,
        values: impl Iterator<Item = f64>,
        (is_from_zero, pixels): (bool, (f64, f64)),
    ) -> Self {
        let values = values.filter(|value| value.is_finite());
        let ends = values.fold(None, |ends: Option<(f64, f64)>, value| {
            let (least, most) = ends.unwrap_or((value, value));
            Some((least.min(value), most.max(value)))
        });
        let (least, most) = ends.unwrap_or((1.0, 2.0));
        let mut range = Range {
            scale,
            ends: (least, most),
            pixels,
        };
        range.ends = match scale {
            Scale::Linear if is_from_zero => {
                let step = range.step_to(most);
                (0.0, (most / step).ceil().max(1.0) * step)
            }
            Scale::Linear => (least, most.max(least + 1.0)),
            Scale::Log(base) => {
                let log = |value: f64| value.max(1e-9).log2() / base.log2();
                let least = log(least).floor();
                (least, log(most).ceil().max(least + 1.0))
            }
        };
        range
    }

    /// Returns the round distance of labels up to `most`.
    fn step_to(&self, most: f64) -> f64 {
        let least = (most / MOST_STEPS).max(1e-9);
        let power = 10_f64.powf(least.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
        let steps = factors.map(|factor| factor * power);
        steps
            .into_iter()
            .find(|step| *step >= least)
            .unwrap_or(10.0 * power)
    }

    fn at(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Log(base) => value.max(1e-9).log2() / base.log2(),
        };
        let share = (value - self.ends.0) / (self.ends.1 - self.ends.0);
        let share = share.clamp(0.0, 1.0);
        self.pixels.0 + (self.pixels.1 - self.pixels.0) * share
    }

    /// Returns the values with labels.
    fn labels(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = self.step_to(self.ends.1 - self.ends.0);
                let first = (self.ends.0 / step).ceil() as i64;
                let last = (self.ends.1 / step).floor() as i64;
                (first..=last).map(|number| number as f64 * step).collect()
            }
            Scale::Log(base) => {
                let powers = self.ends.0 as i32..=self.ends.1 as i32;
                let is_short = base == 10.0 && self.ends.1 - self.ends.0 <= SHORT_LOG;
                let factors = match is_short {
                    true => &[1.0, 2.0, 5.0][..],
                    false => &[1.0],
                };
                let values = powers.flat_map(|power| {
                    let of_power = move |factor: &f64| factor * base.powi(power);
                    factors.iter().map(of_power)
                });
                let most = base.powf(self.ends.1) * 1.001;
                values.filter(|value| *value <= most).collect()
            }
        }
    }
}

/// Formats the value of a label.
fn shown(value: f64) -> String {
    match value {
        million if million >= 1e6 => format!("{}M", rounded(million / 1e6)),
        thousand if thousand >= 1e4 => format!("{}k", rounded(thousand / 1e3)),
        value => rounded(value),
    }
}

fn rounded(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// Escapes text for SVG.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn write(path: &Path, text: String) -> Result<()> {
    std::fs::write(path, text).map_err(|error| {
        let what = format!("cannot write {}", path.display());
        Error::new(ErrorCode::WriteFailed, what).because(error)
    })
}

/// Writes these fields of JSON objects as a table in Markdown.
///
/// # Errors
/// [`ErrorCode::WriteFailed`] if the file cannot be written.
pub(crate) fn write_table<'a>(
    path: &Path,
    columns: &[&str],
    rows: impl Iterator<Item = &'a Value>,
) -> Result<()> {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(columns.iter().map(|name| name.replace('_', " ")).collect());
    text += &line(vec!["-".to_string(); columns.len()]);
    for row in rows {
        let cell = |name: &&str| match &row[*name] {
            Value::Null => "–".to_string(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        text += &line(columns.iter().map(cell).collect());
    }
    write(path, text)
}

impl Chart {
    /// Writes the chart into a file.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        write(path, self.draw())
    }

    /// Returns the chart as SVG.
    pub(crate) fn draw(&self) -> String {
        let title = escaped(&self.title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\" fill=\"#24292f\">\n\
             <title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
        );
        let (left, top, right, bottom) = MARGINS;
        let all = || self.series.iter().flat_map(|series| &series.points);
        let across = (left, WIDTH - right);
        let x = Range::new(self.x.scale, all().map(|point| point.0), (false, across));
        let up = (HEIGHT - bottom, top);
        let y = Range::new(self.y.scale, all().map(|point| point.1), (true, up));
        self.draw_axes(&mut svg, &x, &y);
        match self.names.is_empty() {
            true => self.draw_lines(&mut svg, &x, &y),
            false => self.draw_bars(&mut svg, &y),
        }
        self.draw_legend(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns the middle of a name on the horizontal axis, and the width of its space.
    fn place_of(&self, name: usize) -> (f64, f64) {
        let (left, _, right, _) = MARGINS;
        let width = (WIDTH - left - right) / self.names.len().max(1) as f64;
        (left + width * (name as f64 + 0.5), width)
    }

    // Writing to a string cannot fail.
    fn draw_axes(&self, svg: &mut String, x: &Range, y: &Range) {
        let (left, _, right, bottom) = MARGINS;
        for value in y.labels() {
            let (y, end) = (y.at(value), WIDTH - right);
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {y:.1}H{end}\" stroke=\"#d0d7de\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y + 4.0,
                shown(value)
            );
        }
        let mut below = |x: f64, text: &str| {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - bottom + 18.0,
                escaped(text)
            );
        };
        match self.names.is_empty() {
            true => x
                .labels()
                .into_iter()
                .for_each(|value| below(x.at(value), &shown(value))),
            false => (0..)
                .zip(&self.names)
                .for_each(|(name, text)| below(self.place_of(name).0, text)),
        }
        for (at, text) in &self.marks {
            let at = x.at(*at);
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} 24V{:.1}\" stroke=\"#57606a\" stroke-dasharray=\"4 4\"/>\n\
                 <text x=\"{:.1}\" y=\"36\">{}</text>",
                HEIGHT - bottom,
                at + 4.0,
                escaped(text)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"8\" y=\"14\">{}</text>",
            (left + WIDTH - right) / 2.0,
            HEIGHT - 8.0,
            escaped(&self.x.label),
            escaped(&self.y.label)
        );
    }

    fn draw_lines(&self, svg: &mut String, x: &Range, y: &Range) {
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let at = |point: &(f64, f64)| (x.at(point.0), y.at(point.1));
            let points = series.points.iter().map(at);
            let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                points.join(" ")
            );
            let circled = series.circled.and_then(|index| series.points.get(index));
            if let Some((x, y)) = circled.map(at) {
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"none\" stroke=\"{colour}\"/>"
                );
            }
        }
    }

    fn draw_bars(&self, svg: &mut String, y: &Range) {
        let bottom = HEIGHT - MARGINS.3;
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            for (name, value) in &series.points {
                let (middle, space) = self.place_of(*name as usize);
                let width = space * BAR_SHARE / self.series.len() as f64;
                let left = middle - space * BAR_SHARE / 2.0 + width * number as f64;
                let top = y.at(*value);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                     fill=\"{colour}\"/>",
                    width * 0.95,
                    bottom - top
                );
            }
        }
    }

    /// Draws the names of the series above the chart, from the right.
    fn draw_legend(&self, svg: &mut String) {
        let mut right = WIDTH - MARGINS.2;
        for (number, series) in self.series.iter().enumerate().rev() {
            let colour = COLOURS[number % COLOURS.len()];
            let _ = writeln!(
                svg,
                "<text x=\"{right:.1}\" y=\"14\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
                escaped(&series.name)
            );
            right -= 7.0 * series.name.chars().count() as f64 + 16.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series {
            name: name.into(),
            points: points.to_vec(),
            circled: Some(1),
        }
    }

    fn chart(y: Scale, series: Vec<Series>) -> Chart {
        Chart {
            title: "a < b".into(),
            x: Axis::new("x", Scale::Linear),
            y: Axis::new("y", y),
            names: Vec::new(),
            marks: vec![(2.0, "now".into())],
            series,
        }
    }

    #[test]
    fn each_series_is_a_line_within_the_picture() {
        let sizes = [(1.0, 2.0), (2.0, 4.0), (3.0, 8.0), (4.0, 7.0)];
        let least = [(1.0, 2.0), (2.0, 1.0), (3.0, 1.0)];
        let lines = vec![series("one", &sizes), series("two", &least)];
        let svg = chart(Scale::Log(2.0), lines).draw();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.contains("now"), "{svg}");
        // The largest value is at the top, the least at the bottom.
        assert!(svg.contains("56.0,218.7 272.0,121.3 488.0,24.0"), "{svg}");
    }

    #[test]
    fn names_have_a_bar_of_each_series_from_zero() {
        let bars = vec![
            series("a", &[(0.0, 4.0), (1.0, 8.0)]),
            series("b", &[(0.0, 2.0)]),
        ];
        let svg = Chart {
            names: vec!["first".into(), "second".into()],
            ..chart(Scale::Linear, bars)
        }
        .draw();
        // The background is a rectangle too.
        assert_eq!(svg.matches("<rect").count(), 4);
        assert!(svg.contains("height=\"292.0\""), "{svg}");
    }

    #[test]
    fn a_short_logarithmic_axis_has_labels_between_the_powers_of_ten() {
        let labels = |least: f64, most: f64| {
            let values = [least, most].into_iter();
            Range::new(Scale::Log(10.0), values, (true, (0.0, 1.0))).labels()
        };
        assert_eq!(labels(3.0, 9.0), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(labels(1.0, 1e4), [1.0, 10.0, 100.0, 1e3, 1e4]);
    }

    #[test]
    fn a_chart_without_values_is_valid() {
        for scale in [Scale::Linear, Scale::Log(10.0)] {
            let svg = chart(scale, vec![series("none", &[])]).draw();
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        }
    }
}
