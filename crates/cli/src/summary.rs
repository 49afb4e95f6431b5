//! What a job did, told when it is over.

use std::time::Duration;

use ardea_core::DeadLetter;
use ardea_engine::{JobHandle, JobStatus};
use serde_json::{Value, json};

use crate::figures::{duration, grouped, short};
use crate::shape::{Shape, Totals};

/// How many dead letters are shown.
const SAMPLES: usize = 3;
/// How many bytes of a dead letter are shown.
const RAW_SHOWN: usize = 100;

/// What a job did.
pub struct Summary {
    job: String,
    status: &'static str,
    took: Duration,
    totals: Totals,
    vertices: Vec<VertexSummary>,
    dead_letters: u64,
    dropped: u64,
    samples: Vec<DeadLetter>,
}

/// Sums over the instances of a vertex.
struct VertexSummary {
    name: String,
    instances: u32,
    records_in: u64,
    records_out: u64,
    late: u64,
    bad: u64,
    busy: Duration,
    longest_slice: Duration,
    blocked: u64,
}

impl Summary {
    /// Of a job that ended after `took`; `was_drained` if on request.
    pub fn of(job: &JobHandle, shape: &Shape, took: Duration, was_drained: bool) -> Self {
        let reports = job.metrics();
        let vertices = shape.vertices.iter().map(|vertex| {
            let mut sum = VertexSummary::new(&vertex.name);
            let own = reports.iter().filter(|report| report.vertex == vertex.name);
            own.for_each(|report| sum.add(&report.metrics));
            sum
        });
        let letters = job.dead_letters();
        Summary {
            job: job.name().to_string(),
            status: match job.status() {
                JobStatus::Running => "stopping",
                JobStatus::Completed if was_drained => "drained",
                JobStatus::Completed => "completed",
                JobStatus::Cancelled => "cancelled",
                JobStatus::Failed(_) => "failed",
            },
            took,
            totals: shape.totals(&reports),
            vertices: vertices.collect(),
            dead_letters: letters.count(),
            dropped: letters.dropped(),
            samples: letters.sample().into_iter().take(SAMPLES).collect(),
        }
    }

    fn records_per_s(&self) -> f64 {
        self.totals.records_in as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{} {} after {}: {} records in ({}/s), {} out\n",
            self.job,
            self.status,
            duration(self.took),
            grouped(self.totals.records_in),
            short(self.records_per_s()),
            grouped(self.totals.records_out),
        );
        let widest = |cell: &dyn Fn(&VertexSummary) -> String, heading: &str| {
            let cells = self
                .vertices
                .iter()
                .map(|vertex| cell(vertex).chars().count());
            cells.max().unwrap_or(0).max(heading.len())
        };
        let name = widest(&|vertex| vertex.name.clone(), "vertex");
        let count = widest(&|vertex| vertex.instances.to_string(), "n");
        let read = widest(&|vertex| grouped(vertex.records_in), "in");
        let written = widest(&|vertex| grouped(vertex.records_out), "out");
        text += &format!(
            "  {:name$}  {:>count$}  {:>read$}  {:>written$}\n",
            "vertex", "n", "in", "out"
        );
        for vertex in &self.vertices {
            text += &format!(
                "  {:name$}  {:>count$}  {:>read$}  {:>written$}{}\n",
                vertex.name,
                vertex.instances,
                grouped(vertex.records_in),
                grouped(vertex.records_out),
                vertex.troubles(),
            );
        }
        if self.totals.late > 0 {
            text += &format!("  {} records came too late\n", grouped(self.totals.late));
        }
        if self.dropped > 0 {
            text += &format!("  {} bad records were dropped\n", grouped(self.dropped));
        }
        if self.dead_letters > 0 {
            text += &format!("  {} dead letters, such as\n", grouped(self.dead_letters));
        }
        for letter in &self.samples {
            text += &format!(
                "    {} at {}: {}: {}\n",
                letter.vertex,
                letter.origin,
                letter.reason,
                preview(&letter.raw)
            );
        }
        text
    }

    /// For programs: one object.
    pub fn to_json(&self) -> Value {
        let vertices: Vec<Value> = self.vertices.iter().map(VertexSummary::to_json).collect();
        let samples: Vec<Value> = self
            .samples
            .iter()
            .map(|letter| {
                json!({
                    "vertex": letter.vertex,
                    "origin": letter.origin,
                    "reason": letter.reason,
                    "raw": String::from_utf8_lossy(&letter.raw),
                })
            })
            .collect();
        json!({
            "job": self.job,
            "status": self.status,
            "duration_s": self.took.as_secs_f64(),
            "records_in": self.totals.records_in,
            "records_out": self.totals.records_out,
            "records_per_s": self.records_per_s(),
            "late": self.totals.late,
            "dead_letters": { "count": self.dead_letters, "dropped": self.dropped, "samples": samples },
            "vertices": vertices,
        })
    }
}

impl VertexSummary {
    fn new(name: &str) -> Self {
        VertexSummary {
            name: name.to_string(),
            instances: 0,
            records_in: 0,
            records_out: 0,
            late: 0,
            bad: 0,
            busy: Duration::ZERO,
            longest_slice: Duration::ZERO,
            blocked: 0,
        }
    }

    fn add(&mut self, metrics: &ardea_core::MetricsSnapshot) {
        self.instances += 1;
        self.records_in += metrics.records_in;
        self.records_out += metrics.records_out;
        self.late += metrics.late;
        self.bad += metrics.bad;
        self.busy += metrics.busy;
        self.longest_slice = self.longest_slice.max(metrics.longest_slice);
        self.blocked += metrics.blocked;
    }

    fn troubles(&self) -> String {
        let mut text = String::new();
        for (word, count) in [("late", self.late), ("bad", self.bad)] {
            if count > 0 {
                text += &format!("  {} {word}", grouped(count));
            }
        }
        text
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "instances": self.instances,
            "records_in": self.records_in,
            "records_out": self.records_out,
            "late": self.late,
            "bad": self.bad,
            "busy_s": self.busy.as_secs_f64(),
            "longest_slice_ms": self.longest_slice.as_secs_f64() * 1e3,
            "blocked": self.blocked,
        })
    }
}

/// The beginning of a record, on one line and harmless to a terminal.
fn preview(raw: &[u8]) -> String {
    let shown = &raw[..raw.len().min(RAW_SHOWN)];
    let text = String::from_utf8_lossy(shown).escape_debug().to_string();
    if raw.len() > RAW_SHOWN {
        format!("{text}… ({} bytes)", grouped(raw.len() as u64))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Timestamp;

    fn summary() -> Summary {
        let mut source = VertexSummary::new("files");
        source.instances = 2;
        source.records_out = 12_345;
        source.bad = 1;
        Summary {
            job: "wordcount".into(),
            status: "completed",
            took: Duration::from_secs(2),
            totals: Totals {
                records_in: 12_345,
                records_out: 10,
                late: 3,
                watermark: Timestamp::MAX,
            },
            vertices: vec![source, VertexSummary::new("stdout")],
            dead_letters: 1,
            dropped: 0,
            samples: vec![DeadLetter {
                vertex: "files".into(),
                origin: "a.txt:7".into(),
                raw: b"\xff\x1b[2J".to_vec(),
                reason: "not UTF-8".into(),
            }],
        }
    }

    #[test]
    fn a_person_sees_rates_vertices_and_what_went_wrong() {
        let text = summary().to_text();
        assert!(
            text.starts_with(
                "wordcount completed after 2.0 s: 12,345 records in (6.17 k/s), 10 out\n"
            ),
            "{text}"
        );
        assert!(text.contains("  files   2   0  12,345  1 bad\n"), "{text}");
        assert!(
            text.contains("3 records came too late") && text.contains("a.txt:7: not UTF-8"),
            "{text}"
        );
        assert!(
            !text.contains('\x1b'),
            "a record must not reach the terminal as it is"
        );
    }

    #[test]
    fn a_program_gets_every_figure_as_a_number() {
        let value = summary().to_json();
        assert_eq!(value["records_in"], 12_345);
        assert_eq!(value["vertices"][0]["instances"], 2);
        assert_eq!(value["dead_letters"]["samples"][0]["origin"], "a.txt:7");
    }
}
