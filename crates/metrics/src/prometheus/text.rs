//! The Prometheus text format 0.0.4, and OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::value::number_text;
use crate::{Batch, Labels, Value, catalogue};

/// One of the two text formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// The text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format that an `Accept` header prefers: OpenMetrics if it prefers both equally,
    /// text if it names neither.
    pub(crate) fn accepted(header: &str) -> Self {
        let ranges = || {
            header.split(',').map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next().unwrap_or_default();
                let quality = parts.find_map(|part| {
                    let (name, value) = part.split_once('=')?;
                    let is_quality = name.trim().eq_ignore_ascii_case("q");
                    is_quality.then(|| value.trim().parse::<f64>().unwrap_or(0.0))
                });
                (kind, quality.unwrap_or(1.0))
            })
        };
        // The most specific range counts: `text/plain` before `text/*` before `*/*`.
        let quality = |kinds: &[&str]| {
            let of = |wanted: &&str| {
                let mut ranges = ranges().filter(|(kind, _)| kind.eq_ignore_ascii_case(wanted));
                ranges.next().map(|(_, quality)| quality)
            };
            kinds.iter().find_map(of)
        };
        // A client that accepts anything gets text.
        let new = quality(&["application/openmetrics-text"]).unwrap_or(0.0);
        let plain = quality(&["text/plain", "text/*", "*/*"]).unwrap_or(0.0);
        if new > 0.0 && new >= plain {
            Format::OpenMetrics
        } else {
            Format::Text
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All values of one metric name. They have the same kind, and each set of labels occurs once.
struct Family<'a> {
    kind: &'static str,
    values: BTreeMap<Labels, &'a Value>,
}

/// Renders all samples, grouped by name. Of several samples with equal name and labels, the last is
/// used. If samples of one name differ in kind, the first kind is used.
pub(crate) fn render<'a>(batches: impl Iterator<Item = &'a Batch>, format: Format) -> String {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    let mut of_two_kinds = 0;
    for batch in batches {
        for sample in &batch.samples {
            let kind = sample.value.kind();
            let family = families
                .entry(sample.name.as_str())
                .or_insert_with(|| Family {
                    kind,
                    values: BTreeMap::new(),
                });
            if family.kind != kind {
                of_two_kinds += 1;
                continue;
            }
            let labels = sample.labels.over(&batch.process);
            family.values.insert(labels, &sample.value);
        }
    }
    let mut out = String::new();
    for (name, family) in &families {
        write_family(&mut out, name, family, format);
    }
    match format {
        Format::Text if of_two_kinds > 0 => {
            let _ = writeln!(
                out,
                "# {of_two_kinds} samples left out: another kind has their name"
            );
        }
        Format::Text => {}
        Format::OpenMetrics => out.push_str("# EOF\n"),
    }
    out
}

fn write_family(out: &mut String, name: &str, family: &Family<'_>, format: Format) {
    // In OpenMetrics, the name of a counter's family has no suffix `_total`, but the names in its
    // lines have it.
    let (head, tail) = match format {
        Format::OpenMetrics if family.kind == "counter" => {
            (name.strip_suffix("_total").unwrap_or(name), "_total")
        }
        _ => (name, ""),
    };
    if let Some(metric) = catalogue::find(name) {
        let _ = writeln!(out, "# HELP {head} {}", metric.about);
    }
    let _ = writeln!(out, "# TYPE {head} {}", family.kind);
    for (labels, value) in &family.values {
        value.lines(|line| {
            let name = if tail.is_empty() { name } else { head };
            let with_own = line.label.map(|(label, value)| {
                // In OpenMetrics, these labels are numbers with a decimal point.
                let is_whole = format == Format::OpenMetrics && is_digits(value);
                let value = if is_whole {
                    &format!("{value}.0")
                } else {
                    value
                };
                labels.with(label, value)
            });
            let labels = with_own.as_ref().unwrap_or(labels);
            let _ = write!(out, "{name}{tail}{}", line.suffix);
            if !labels.is_empty() {
                let _ = write!(out, "{{{labels}}}");
            }
            let _ = writeln!(out, " {}", number_text(line.number));
        });
    }
}

fn is_digits(text: &str) -> bool {
    text.trim_start_matches('-')
        .bytes()
        .all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buckets, Quantiles};
    use ardea_core::Timestamp;

    fn batch() -> Batch {
        let now = Timestamp::from_secs(9);
        let mut batch = Batch::new(Labels::of([("job", "a\"b")]), now, now);
        let labels = Labels::of([("vertex", "v\\1\n")]);
        batch.push("ardea_records_in_total", &labels, Value::Counter(12.0));
        batch.push("odd.name", &Labels::none(), Value::Gauge(f64::NEG_INFINITY));
        let mut buckets = Buckets::new(&[0.5]);
        buckets.observe_many(0.25, 3);
        buckets.observe(2.0);
        batch.push("took_seconds", &Labels::none(), Value::Histogram(buckets));
        let quantiles = Quantiles {
            values: vec![(0.5, 1.5), (0.99, f64::NAN)],
            sum: 3.0,
            count: 2,
        };
        batch.push("waits", &Labels::none(), Value::Summary(quantiles));
        batch
    }

    #[test]
    fn text_has_each_family_once_with_help_type_and_escaped_labels() {
        let text = render([&batch()].into_iter(), Format::Text);
        let expected = r#"# HELP ardea_records_in_total records read, over all inputs
# TYPE ardea_records_in_total counter
ardea_records_in_total{job="a\"b",vertex="v\\1\n"} 12
# TYPE odd_name gauge
odd_name{job="a\"b"} -Inf
# TYPE took_seconds histogram
took_seconds_bucket{job="a\"b",le="0.5"} 3
took_seconds_bucket{job="a\"b",le="+Inf"} 4
took_seconds_sum{job="a\"b"} 2.75
took_seconds_count{job="a\"b"} 4
# TYPE waits summary
waits{job="a\"b",quantile="0.5"} 1.5
waits{job="a\"b",quantile="0.99"} NaN
waits_sum{job="a\"b"} 3
waits_count{job="a\"b"} 2
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn whoever_reads_gets_the_format_that_it_prefers() {
        let new = "application/openmetrics-text";
        for (header, expected) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            (new, Format::OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            (
                "application/openmetrics-text;q=0.3, text/plain;q=0.9",
                Format::Text,
            ),
            ("application/openmetrics-text; q=0, */*", Format::Text),
            (
                "Application/OpenMetrics-Text, */*;q=0.1",
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::accepted(header), expected, "{header}");
        }
    }

    #[test]
    fn bounds_are_written_with_a_point_in_openmetrics() {
        let now = Timestamp::from_secs(9);
        let mut batch = Batch::new(Labels::none(), now, now);
        let buckets = Buckets::new(&[0.5, 1.0, 30.0]);
        batch.push("took", &Labels::none(), Value::Histogram(buckets));
        let bounds = |format| {
            let text = render([&batch].into_iter(), format);
            let bounds = text.split("le=\"").skip(1);
            let bounds = bounds.map(|rest| rest.split('"').next().unwrap().to_string());
            bounds.collect::<Vec<_>>()
        };
        assert_eq!(bounds(Format::Text), ["0.5", "1", "30", "+Inf"]);
        assert_eq!(bounds(Format::OpenMetrics), ["0.5", "1.0", "30.0", "+Inf"]);
    }

    #[test]
    fn openmetrics_names_a_counters_family_without_its_ending_and_ends_with_eof() {
        let text = render([&batch()].into_iter(), Format::OpenMetrics);
        assert!(
            text.contains("# TYPE ardea_records_in counter\nardea_records_in_total{"),
            "{text}"
        );
        assert!(text.ends_with("\n# EOF\n"));
        assert_eq!(render([].into_iter(), Format::OpenMetrics), "# EOF\n");
    }

    #[test]
    fn processes_share_families_duplicates_are_shown_once_and_other_kinds_are_left_out() {
        let now = Timestamp::from_secs(9);
        let batches = ["1", "2"].map(|container| {
            let mut batch = Batch::new(Labels::of([("container", container)]), now, now);
            batch.push("level", &Labels::none(), Value::Gauge(1.0));
            batch.push("level", &Labels::none(), Value::Gauge(2.0));
            batch.push("level", &Labels::none(), Value::Counter(3.0));
            batch
        });
        let text = render(batches.iter(), Format::Text);
        assert_eq!(text.matches("# TYPE").count(), 1);
        assert_eq!(text.matches("} 2\n").count(), 2);
        assert!(
            text.ends_with("# 2 samples left out: another kind has their name\n"),
            "{text}"
        );
    }
}
