//! The vertices of a summary: counters and times.

use std::time::Duration;

use ardea_core::Timestamp;
use serde_json::{Value, json};

use crate::console::columns::table;
use crate::console::format_number::{duration, grouped};
use crate::console::graph_view::VertexRole;

/// Sums over the instances of a vertex.
pub(super) struct VertexSummary {
    pub(super) name: String,
    pub(super) is_source: bool,
    pub(super) is_sink: bool,
    pub(super) is_main: bool,
    pub(super) instances: u32,
    pub(super) records_in: u64,
    pub(super) records_out: u64,
    pub(super) late: u64,
    pub(super) late_in_part: u64,
    pub(super) bad: u64,
    pub(super) busy: Duration,
    pub(super) busy_cpu: Duration,
    pub(super) chain: Duration,
    pub(super) idle: Duration,
    pub(super) blocked_for: Duration,
    pub(super) longest_slice: Duration,
    pub(super) blocked: u64,
    /// The lowest watermark of the instances.
    pub(super) watermark: Timestamp,
}

impl VertexSummary {
    pub(super) fn new(vertex: &VertexRole) -> Self {
        VertexSummary {
            name: vertex.name.to_string(),
            is_source: vertex.is_source,
            is_sink: vertex.is_sink,
            is_main: vertex.is_main,
            instances: 0,
            records_in: 0,
            records_out: 0,
            late: 0,
            late_in_part: 0,
            bad: 0,
            busy: Duration::ZERO,
            busy_cpu: Duration::ZERO,
            chain: Duration::ZERO,
            idle: Duration::ZERO,
            blocked_for: Duration::ZERO,
            longest_slice: Duration::ZERO,
            blocked: 0,
            watermark: Timestamp::MAX,
        }
    }

    pub(super) fn add(&mut self, metrics: &ardea_core::MetricsSnapshot) {
        self.instances += 1;
        self.records_in += metrics.records_in;
        self.records_out += metrics.records_out;
        self.late += metrics.late;
        self.late_in_part += metrics.late_in_part;
        self.bad += metrics.bad;
        self.busy += metrics.busy;
        self.busy_cpu += metrics.busy_cpu;
        self.chain += metrics.chain;
        self.idle += metrics.idle_for;
        self.blocked_for += metrics.blocked_for;
        self.longest_slice = self.longest_slice.max(metrics.longest_slice);
        self.blocked += metrics.blocked;
        self.watermark = self.watermark.min(metrics.watermark);
    }

    /// Returns true if the vertex received records and all of them were bad.
    pub(super) fn is_all_bad(&self) -> bool {
        let good = if self.is_source {
            self.records_out
        } else {
            self.records_in.saturating_sub(self.bad)
        };
        self.bad > 0 && good == 0
    }

    pub(super) fn troubles(&self) -> String {
        let mut text = String::new();
        let counts = [
            ("late", self.late),
            ("late in part", self.late_in_part),
            ("bad", self.bad),
        ];
        for (word, count) in counts {
            if count > 0 {
                text += &format!("  {} {word}", grouped(count));
            }
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "instances": self.instances,
            "records_in": self.records_in,
            "records_out": self.records_out,
            "late": self.late,
            "late_in_part": self.late_in_part,
            "bad": self.bad,
            "busy_s": self.busy.as_secs_f64(),
            "busy_cpu_s": self.busy_cpu.as_secs_f64(),
            "chain_s": self.chain.as_secs_f64(),
            "idle_s": self.idle.as_secs_f64(),
            "blocked_s": self.blocked_for.as_secs_f64(),
            "longest_slice_ms": self.longest_slice.as_secs_f64() * 1e3,
            "blocked": self.blocked,
            "watermark": match self.watermark {
                Timestamp::MIN => Value::Null,
                Timestamp::MAX => json!("end"),
                time => json!(time.to_string()),
            },
        })
    }
}

/// Returns a table of the time spent by each vertex of a job that ran for `took`, to find the slow
/// step.
pub(super) fn times(vertices: &[VertexSummary], took: Duration) -> String {
    let share = |time: Duration, vertex: &VertexSummary| {
        let whole = took.as_secs_f64() * f64::from(vertex.instances.max(1));
        format!("{:.0} %", 100.0 * time.as_secs_f64() / whole.max(1e-9))
    };
    let rows = vertices.iter().map(|vertex| {
        vec![
            vertex.name.clone(),
            duration(vertex.busy),
            duration(vertex.busy_cpu),
            share(vertex.idle, vertex),
            share(vertex.blocked_for, vertex),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let table = table(&["vertex", ">busy", ">cpu", ">idle", ">blocked"], &rows);
    let lines = table.lines().map(|line| format!("  {line}\n"));
    let mut text: String = lines.collect();
    let all: Duration = vertices.iter().map(|vertex| vertex.busy).sum();
    if let Some(most) = vertices.iter().max_by_key(|vertex| vertex.busy)
        && !most.busy.is_zero()
    {
        text += &format!(
            "  most of the work is in {}: {} of {}\n",
            most.name,
            duration(most.busy),
            duration(all)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_time_went_is_told_by_vertex() {
        let vertex = |name: &str, instances| VertexSummary {
            instances,
            ..VertexSummary::new(&VertexRole {
                name: name.into(),
                is_source: false,
                is_sink: false,
                is_main: false,
            })
        };
        let mut vertices = [vertex("files", 2), vertex("map-2", 1)];
        vertices[0].busy = Duration::from_millis(500);
        vertices[0].idle = Duration::from_secs(1);
        vertices[1].busy = Duration::from_millis(1_500);
        vertices[1].busy_cpu = Duration::from_millis(300);
        let text = times(&vertices, Duration::from_secs(2));
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "vertex busy cpu idle blocked",
                "files 500 ms 0 µs 25 % 0 %",
                "map-2 1.5 s 300 ms 0 % 0 %",
                "most of the work is in map-2: 1.5 s of 2.0 s",
            ]
        );
        let value = vertices[1].to_json();
        assert_eq!(value["busy_cpu_s"], 0.3);
        assert_eq!(vertices[0].to_json()["idle_s"], 1.0);
    }
}
