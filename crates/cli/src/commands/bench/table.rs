//! A report as a table: names on the left, numbers aligned at the decimal point, units on the
//! right.

use ardea_bench::Report;
use ardea_bench::report::Field;
use serde_json::Value;

use ardea::console::format_number::grouped;

/// The text for a figure that could not be measured.
const NONE: &str = "–";

/// Formats the parameters of `report` and the `columns` of figures, each with its heading. An empty
/// heading is omitted.
pub fn of(report: &Report, columns: &[(String, Vec<Field>)]) -> String {
    let mut text = format!(
        "\nardea {} bench {}\n\n",
        env!("CARGO_PKG_VERSION"),
        report.bench
    );
    let names: Vec<&str> = rows(columns);
    let labels = names.iter().map(|name| label(name).0);
    let asked: Vec<(String, String)> = report
        .parameters
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.replace('_', " "), shown(value)))
        .collect();
    let width = labels
        .chain(asked.iter().map(|(name, _)| name.clone()))
        .map(|label| label.chars().count())
        .max()
        .unwrap_or(0);
    for (name, value) in &asked {
        text += &format!("  {name:width$}  {value}\n");
    }
    text.push('\n');
    let columns: Vec<Column> = columns
        .iter()
        .map(|(heading, fields)| Column::new(heading, &names, fields))
        .collect();
    if columns.iter().any(|column| !column.heading.is_empty()) {
        text += &line("", width, columns.iter().map(Column::top), "");
    }
    for (row, name) in names.iter().enumerate() {
        let (label, unit) = label(name);
        text += &line(
            &label,
            width,
            columns.iter().map(|column| column.cell(row)),
            unit,
        );
    }
    text
}

/// Returns the names of all figures, in order of first occurrence.
fn rows(columns: &[(String, Vec<Field>)]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for (name, _) in columns.iter().flat_map(|(_, fields)| fields) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

fn line(label: &str, width: usize, cells: impl Iterator<Item = String>, unit: &str) -> String {
    let mut line = format!("  {label:width$}");
    for cell in cells {
        line += "  ";
        line += &cell;
    }
    line.push(' ');
    line += unit;
    format!("{}\n", line.trim_end())
}

/// A column of numbers, split at the decimal point.
struct Column {
    heading: String,
    cells: Vec<(String, String)>,
    whole: usize,
    fraction: usize,
}

impl Column {
    fn new(heading: &str, names: &[&str], fields: &[Field]) -> Column {
        let cells: Vec<(String, String)> = names
            .iter()
            .map(|name| {
                let value = fields.iter().find(|(known, _)| known == name);
                let text = value.map_or_else(String::new, |(_, value)| shown(value));
                match text.find('.') {
                    Some(point) => (text[..point].to_string(), text[point..].to_string()),
                    None => (text, String::new()),
                }
            })
            .collect();
        let widest = |part: fn(&(String, String)) -> &String| {
            let widths = cells.iter().map(|cell| part(cell).chars().count());
            widths.max().unwrap_or(0)
        };
        let fraction = widest(|cell| &cell.1);
        Column {
            heading: heading.to_string(),
            whole: widest(|cell| &cell.0).max(heading.chars().count().saturating_sub(fraction)),
            fraction,
            cells,
        }
    }

    fn top(&self) -> String {
        format!("{:>1$}", self.heading, self.whole + self.fraction)
    }

    fn cell(&self, row: usize) -> String {
        let (whole, fraction) = &self.cells[row];
        format!("{whole:>0$}{fraction:<1$}", self.whole, self.fraction)
    }
}

/// Formats a value.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => NONE.into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && (0.0..1e15).contains(&float) => {
                grouped(float as u64)
            }
            _ => with_grouped_whole(number.to_string()),
        },
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(shown).collect();
            values.join(" ")
        }
        other => other.to_string(),
    }
}

/// Groups the digits before the decimal point of a fractional number.
fn with_grouped_whole(text: String) -> String {
    match text.split_once('.') {
        Some((whole, fraction)) => match whole.parse() {
            Ok(whole) => format!("{}.{fraction}", grouped(whole)),
            Err(_) => text,
        },
        None => text,
    }
}

/// Returns the label and the unit of the figure `name`.
fn label(name: &str) -> (String, &'static str) {
    const UNITS: [(&str, &str, &str); 10] = [
        ("cpu_seconds", "cpu time", "s"),
        ("achieved_rate", "achieved rate", "/s"),
        ("_per_cpu_s", " per cpu second", ""),
        ("_per_s", "", "/s"),
        ("_percent", "", "%"),
        ("_mb_per_h", "", "MiB/h"),
        ("_ms", "", "ms"),
        ("_us", "", "µs"),
        ("_mb", "", "MiB"),
        ("_s", "", "s"),
    ];
    let (stem, ending, unit) = UNITS
        .into_iter()
        .find_map(|(suffix, words, unit)| Some((name.strip_suffix(suffix)?, words, unit)))
        .unwrap_or((name, "", ""));
    let mut words = stem.replace("p9999", "p99.99").replace("p999", "p99.9");
    if let Some(what) = words.strip_suffix("_us_per_event") {
        return (format!("{what} per event"), "µs");
    }
    words += ending;
    (words.replace('_', " "), unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> Report {
        Report {
            bench: "nexmark",
            parameters: vec![
                ("query", json!("q5")),
                ("keys", json!(10_000)),
                ("epoch", Value::Null),
            ],
            figures: vec![
                ("events", json!(20_000_000)),
                ("achieved_rate", json!(999_977.0)),
                ("events_per_cpu_s", json!(3_733_551.0)),
                ("p50_ms", json!(0.0931)),
                ("p9999_ms", json!(12.5)),
                ("max_ms", Value::Null),
                ("cpu_seconds", json!(2.678)),
                ("cpu_us_per_event", json!(7.5)),
                ("rss_mb", json!(81.0)),
                ("agrees_with_baseline", json!(true)),
            ],
        }
    }

    #[test]
    fn numbers_stand_under_each_other_with_their_units() {
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "
ardea {version} bench nexmark

  query                  q5
  keys                   10,000

  events                 20,000,000
  achieved rate             999,977      /s
  events per cpu second   3,733,551
  p50                             0.0931 ms
  p99.99                         12.5    ms
  max                             –      ms
  cpu time                        2.678  s
  cpu per event                   7.5    µs
  rss                            81      MiB
  agrees with baseline          yes
"
        );
        assert_eq!(
            of(&report(), &[(String::new(), report().figures)]),
            expected
        );
    }

    #[test]
    fn a_fraction_behind_a_large_number_leaves_it_readable() {
        assert_eq!(shown(&json!(1_146_350_812.5)), "1,146,350,812.5");
        assert_eq!(shown(&json!(0.0931)), "0.0931");
        assert_eq!(shown(&json!(-1_000.5)), "-1000.5");
    }

    #[test]
    fn several_columns_have_headings_and_their_own_widths() {
        let columns = [
            (
                "best".to_string(),
                vec![("p50_ms", json!(0.5)), ("events", json!(1_000))],
            ),
            (
                "median".to_string(),
                vec![("p50_ms", json!(11.25)), ("events", json!(7))],
            ),
        ];
        let text = of(&report(), &columns);
        let figures: Vec<&str> = text.lines().rev().take(3).collect();
        assert_eq!(
            figures,
            [
                "  events  1,000      7",
                "  p50         0.5   11.25 ms",
                "             best  median",
            ]
        );
    }
}
