//! A chart of tuned group sizes, as SVG.

use std::fmt::Write;

use super::tuning::Trace;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
/// The space for labels: left, top, right, bottom.
const MARGINS: (f64, f64, f64, f64) = (56.0, 24.0, 16.0, 44.0);
const COLOURS: [&str; 4] = ["#1f6feb", "#d1570a", "#2f8f46", "#8250df"];

/// A chart area: positions of groups and sizes.
struct Area {
    groups: f64,
    /// The logarithm of the largest size to the base of two.
    doublings: f64,
}

impl Area {
    fn of(traces: &[Trace]) -> Self {
        let groups = traces.iter().map(|trace| trace.steps.len()).max();
        let sizes = traces.iter().flat_map(|trace| &trace.steps);
        let most = sizes.map(|step| step.size).max().unwrap_or(1).max(2);
        Area {
            groups: groups.unwrap_or(1).max(2) as f64,
            doublings: f64::from(most).log2().ceil(),
        }
    }

    fn x(&self, group: usize) -> f64 {
        let (left, _, right, _) = MARGINS;
        left + (WIDTH - left - right) * group as f64 / (self.groups - 1.0)
    }

    fn y(&self, size: f64) -> f64 {
        let (_, top, _, bottom) = MARGINS;
        HEIGHT - bottom - (HEIGHT - top - bottom) * size.log2() / self.doublings
    }
}

/// Draws the size of groups by their number, one line for each trace, with a logarithmic scale of
/// sizes.
pub(super) fn draw(traces: &[Trace]) -> String {
    let area = Area::of(traces);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#24292f\">\n\
         <title>Sizes of tuned groups</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    draw_axes(&mut svg, &area);
    for (number, trace) in traces.iter().enumerate() {
        draw_trace(&mut svg, &area, trace, number);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_axes(svg: &mut String, area: &Area) {
    let (left, _, right, bottom) = MARGINS;
    // Writing to a string cannot fail.
    for doubling in 0..=area.doublings as u32 {
        let size = 1_u64 << doubling.min(63);
        let y = area.y(size as f64);
        let end = WIDTH - right;
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {y:.1}H{end}\" stroke=\"#d0d7de\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{size}</text>",
            left - 8.0,
            y + 4.0
        );
    }
    for group in (0..area.groups as usize).step_by(10) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            area.x(group),
            HEIGHT - bottom + 18.0,
            group + 1
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">group</text>\n\
         <text x=\"{left}\" y=\"14\" text-anchor=\"middle\">size</text>",
        (left + WIDTH - right) / 2.0,
        HEIGHT - 8.0
    );
}

fn draw_trace(svg: &mut String, area: &Area, trace: &Trace, number: usize) {
    let colour = COLOURS[number % COLOURS.len()];
    let points: Vec<String> = trace
        .steps
        .iter()
        .enumerate()
        .map(|(group, step)| format!("{:.1},{:.1}", area.x(group), area.y(step.size.into())))
        .collect();
    let (_, _, right, bottom) = MARGINS;
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
        points.join(" "),
        WIDTH - right,
        HEIGHT - bottom - 8.0 - 16.0 * number as f64,
        trace.name()
    );
    if let Some(stalled) = trace.stalled
        && let Some(step) = trace.steps.get(stalled)
    {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"none\" stroke=\"{colour}\"/>",
            area.x(stalled),
            area.y(step.size.into())
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tuning::TraceStep;
    use super::*;

    fn trace(sizes: &[u32]) -> Trace {
        let step = |size: &u32| TraceStep {
            size: *size,
            share: 0.1,
            next_size: *size,
        };
        Trace {
            micro_batch: Duration::from_millis(100),
            steps: sizes.iter().map(step).collect(),
            stalled: Some(1),
        }
    }

    #[test]
    fn each_trace_is_a_line_within_the_picture() {
        let svg = draw(&[trace(&[2, 4, 8, 7]), trace(&[2, 1, 1])]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("micro-batches of 100ms"), "{svg}");
        // The largest size is at the top, the least at the bottom.
        assert!(svg.contains("56.0,218.7 272.0,121.3 488.0,24.0"), "{svg}");
    }

    #[test]
    fn a_picture_without_steps_is_valid() {
        let svg = draw(&[trace(&[])]);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    }
}
