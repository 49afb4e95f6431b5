//! The summary of a job, printed when it is over.

mod checkpoints;
mod vertices;

use std::time::Duration;

use ardea_checkpoint::local::JobEnd;
use ardea_core::{DeadLetter, DeadLetters, Error, ErrorCode};
use ardea_engine::{JobHandle, JobStatus};
use serde_json::{Value, json};

use super::format_number::{duration, grouped, short};
use super::graph_view::{GraphView, Totals};

pub use checkpoints::CheckpointSummary;
use vertices::{VertexSummary, times};

/// The maximum number of dead letters that are shown.
const SAMPLES: usize = 3;

/// The summary of a job.
pub struct Summary {
    job: String,
    status: JobStatus,
    took: Duration,
    totals: Totals,
    /// Records that the sources have emitted in this process.
    read_here: u64,
    /// True if the job shows live tables.
    has_tables: bool,
    vertices: Vec<VertexSummary>,
    dead_letters: u64,
    dropped: u64,
    /// Dead letters that did not fit into their file.
    unwritten: u64,
    samples: Vec<DeadLetter>,
    /// Fault-tolerance statistics of a job with a guarantee.
    survival: Option<CheckpointSummary>,
}

impl Summary {
    /// Creates the summary of a job that ended, or was abandoned, after `took`.
    pub fn of(job: &JobHandle, status: &JobStatus, shape: &GraphView, took: Duration) -> Self {
        let reports = job.metrics();
        let vertices = shape.vertices.iter().map(|vertex| {
            let mut sum = VertexSummary::new(vertex);
            let own = reports.iter().filter(|report| report.vertex == vertex.name);
            own.for_each(|report| sum.add(&report.metrics));
            sum
        });
        let letters = job.dead_letters();
        let totals = shape.totals(&reports);
        Summary {
            job: job.name().to_string(),
            status: status.clone(),
            took,
            totals,
            read_here: totals.records_in,
            has_tables: shape.has_tables(),
            vertices: vertices.collect(),
            dead_letters: letters.count(),
            dropped: letters.dropped(),
            unwritten: letters.unwritten(),
            samples: samples(letters),
            survival: None,
        }
    }

    /// Turns this into the summary of a job with a guarantee, whose records are counted over all
    /// attempts.
    pub fn with_checkpoints(mut self, survival: CheckpointSummary) -> Self {
        let mut totals = Totals {
            records_in: 0,
            records_out: 0,
            late: 0,
            late_in_part: 0,
            ..self.totals
        };
        let mut before = 0;
        for vertex in &mut self.vertices {
            let counted = survival.counts.of(&vertex.name);
            (vertex.records_in, vertex.records_out) = (counted.records_in, counted.records_out);
            (vertex.late, vertex.bad) = (counted.late, counted.bad);
            vertex.late_in_part = counted.late_in_part;
            totals.late += counted.late;
            totals.late_in_part += counted.late_in_part;
            if vertex.is_source {
                totals.records_in += counted.records_out;
                before += survival.counts_before.of(&vertex.name).records_out;
            }
            if vertex.is_sink {
                totals.records_out += counted.records_in;
            }
        }
        self.read_here = totals.records_in.saturating_sub(before);
        self.totals = totals;
        self.survival = Some(survival);
        self
    }

    /// Returns true if the job was stopped but ended without a last checkpoint.
    pub fn has_timed_out(&self) -> bool {
        let survival = self.survival.as_ref();
        survival.is_some_and(|survival| survival.figures.is_interrupted)
    }

    /// Returns true if the job processed no record at all.
    pub fn is_blank(&self) -> bool {
        self.vertices
            .iter()
            .all(|vertex| vertex.records_in + vertex.records_out + vertex.bad == 0)
    }

    /// Returns the warnings that are shown even without a summary, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.was_drained() {
            warnings.push(format!("{} {}", self.job, self.early_end()));
        }
        if let Some(first) = self.samples.first() {
            warnings.push(format!(
                "{} could not be dealt with, the first at {}: {}",
                records(self.dead_letters),
                first.origin,
                first.reason
            ));
        }
        if self.dropped > 0 {
            warnings.push(self.drops());
        }
        warnings.extend(self.gap_in_file());
        warnings
    }

    /// Returns the error of a job that ended well, but in which all records of a source or step
    /// were bad.
    pub fn nothing_good(&self) -> Option<Error> {
        let vertex = self.vertices.iter().find(|vertex| vertex.is_all_bad())?;
        let first = self
            .samples
            .iter()
            .find(|letter| letter.vertex == vertex.name);
        let first = first.map_or(String::new(), |letter| {
            format!(", the first at {}: {}", letter.origin, letter.reason)
        });
        Some(
            Error::new(
                ErrorCode::BadRecord,
                format!(
                    "no record was good: {} of {:?} could not be dealt with{first}",
                    records(vertex.bad),
                    vertex.name
                ),
            )
            .hint(match self.has_completed() {
                false => "check that it is the right input, and in the right format",
                true => "check that it is the right input, and in the right format; the job has completed with it: run it again with --set recovery.start_over=true",
            }),
        )
    }

    /// Returns true if the job has completed, so that running it again does nothing.
    fn has_completed(&self) -> bool {
        let survival = self.survival.as_ref();
        survival.is_some_and(|it| it.end == Some(JobEnd::Completed))
    }

    /// Returns true if the job was stopped with a checkpoint from which the next run continues.
    fn was_stopped(&self) -> bool {
        let survival = self.survival.as_ref();
        survival.is_some_and(CheckpointSummary::was_stopped)
    }

    fn was_drained(&self) -> bool {
        matches!(self.status, JobStatus::Drained)
    }

    /// Describes the bad records that left no dead letter.
    fn drops(&self) -> String {
        match self.dropped {
            1 => "1 bad record was dropped".to_string(),
            more => format!("{} bad records were dropped", grouped(more)),
        }
    }

    /// Describes the records missing from the file of dead letters.
    fn gap_in_file(&self) -> Option<String> {
        (self.unwritten > 0).then(|| {
            format!(
                "{} of the dead letters are not in their file, which is full (dead_letters_limit)",
                grouped(self.unwritten)
            )
        })
    }

    /// Returns the job's state in a word. A job that still runs when it is summarized did not stop
    /// when cancelled.
    fn status(&self) -> &'static str {
        if self.has_timed_out() {
            return "interrupted";
        }
        if self.was_stopped() {
            return "stopped";
        }
        match self.status {
            JobStatus::Running => "stopping",
            JobStatus::Drained => "drained",
            JobStatus::Completed => "completed",
            JobStatus::Cancelled => "cancelled",
            JobStatus::Failed(_) => "failed",
        }
    }

    fn early_end(&self) -> String {
        format!(
            "was stopped before its input ended: the results are those of the first {}",
            records(self.totals.records_in)
        )
    }

    fn records_per_s(&self) -> f64 {
        self.read_here as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Returns text with all steps if `verbose`, else with the named ones. For a job with live
    /// tables, the text has no steps unless `verbose`: the tables should stay on the screen.
    pub fn to_text(&self, verbose: bool) -> String {
        let is_short = self.has_tables && !verbose;
        let mut text = format!(
            "{} {} after {}: {} in ({}/s), {} out{}\n",
            self.job,
            self.status(),
            duration(self.took),
            records(self.totals.records_in),
            short(self.records_per_s()),
            grouped(self.totals.records_out),
            match (is_short, self.totals.late) {
                (false, _) => String::new(),
                (true, 0) => " (-v shows the steps)".to_string(),
                (true, late) => format!(", {} late (-v shows the steps)", grouped(late)),
            }
        );
        if let Some(survival) = &self.survival {
            text += &survival.to_text();
        }
        if is_short {
            return text + &self.bad_records();
        }
        text += &self.steps(verbose);
        if verbose {
            text += &times(&self.vertices, self.took);
        }
        text += &self.gaps();
        text + &self.bad_records()
    }

    /// Returns the steps in columns.
    fn steps(&self, verbose: bool) -> String {
        let shown: Vec<&VertexSummary> = self
            .vertices
            .iter()
            .filter(|vertex| verbose || vertex.is_main || vertex.late + vertex.bad > 0)
            .collect();
        let widest = |cell: &dyn Fn(&VertexSummary) -> String, heading: &str| {
            let cells = shown.iter().map(|vertex| cell(vertex).chars().count());
            cells.max().unwrap_or(0).max(heading.len())
        };
        let name = widest(&|vertex| vertex.name.clone(), "vertex");
        let count = widest(&|vertex| vertex.instances.to_string(), "n");
        let read = widest(&|vertex| grouped(vertex.records_in), "in");
        let written = widest(&|vertex| grouped(vertex.records_out), "out");
        let mut text = format!(
            "  {:name$}  {:>count$}  {:>read$}  {:>written$}\n",
            "vertex", "n", "in", "out"
        );
        for vertex in &shown {
            text += &format!(
                "  {:name$}  {:>count$}  {:>read$}  {:>written$}{}\n",
                vertex.name,
                vertex.instances,
                grouped(vertex.records_in),
                grouped(vertex.records_out),
                vertex.troubles(),
            );
        }
        match self.vertices.len() - shown.len() {
            0 => {}
            1 => text += "  and a step without a name (-v shows it)\n",
            more => text += &format!("  and {more} steps without a name (-v shows them)\n"),
        }
        text
    }

    /// Describes the good input that is missing from the results.
    fn gaps(&self) -> String {
        let mut text = String::new();
        if self.was_drained() {
            text += &format!("  it {}\n", self.early_end());
        }
        if self.totals.late > 0 {
            text += &format!("  {} came too late\n", records(self.totals.late));
        }
        if self.totals.late_in_part > 0 {
            text += &format!(
                "  {} came too late for some of their windows\n",
                records(self.totals.late_in_part)
            );
        }
        text
    }

    /// Describes the bad input.
    fn bad_records(&self) -> String {
        let mut text = String::new();
        if self.dropped > 0 {
            text += &format!("  {}\n", self.drops());
        }
        if self.dead_letters > 0 {
            text += &match self.dead_letters {
                1 => "  1 dead letter:\n".to_string(),
                more => format!("  {} dead letters, such as\n", grouped(more)),
            };
        }
        if let Some(gap) = self.gap_in_file() {
            text += &format!("  {gap}\n");
        }
        for letter in &self.samples {
            text += &format!(
                "    {} at {}: {}: {}\n",
                letter.vertex,
                letter.origin,
                letter.reason,
                letter.preview()
            );
        }
        text
    }

    /// Returns the summary as one JSON object.
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
        let mut summary = json!({
            "job": self.job,
            "status": self.status(),
            "duration_s": self.took.as_secs_f64(),
            "records_in": self.totals.records_in,
            "records_out": self.totals.records_out,
            "records_per_s": self.records_per_s(),
            "late": self.totals.late,
            "late_in_part": self.totals.late_in_part,
            "dead_letters": { "count": self.dead_letters, "dropped": self.dropped, "unwritten": self.unwritten, "samples": samples },
            "vertices": vertices,
        });
        if let (Some(survival), Some(fields)) = (&self.survival, summary.as_object_mut()) {
            fields.insert("fault_tolerance".into(), survival.to_json());
        }
        summary
    }
}

/// Returns the first dead letter, and the first others that are still available.
fn samples(letters: &DeadLetters) -> Vec<DeadLetter> {
    let first = letters.first().cloned();
    let others = letters.sample().into_iter();
    let others = others.filter(|letter| Some(letter) != first.as_ref());
    let others: Vec<DeadLetter> = others.take(SAMPLES - 1).collect();
    first.into_iter().chain(others).collect()
}

/// Formats a number of records.
fn records(count: u64) -> String {
    match count {
        1 => "1 record".to_string(),
        _ => format!("{} records", grouped(count)),
    }
}

#[cfg(test)]
mod tests {
    use ardea_checkpoint::local::{JobCounts, JobEnd};
    use ardea_core::Timestamp;
    use ardea_engine::RecordCounts;

    use super::*;
    use crate::console::graph_view::VertexRole;

    fn summary() -> Summary {
        let vertex = |name: &str, is_source, is_sink| {
            VertexSummary::new(&VertexRole {
                name: name.into(),
                is_source,
                is_sink,
                is_main: is_source || is_sink,
            })
        };
        let mut source = vertex("files", true, false);
        source.instances = 2;
        source.records_out = 12_345;
        source.bad = 1;
        Summary {
            job: "wordcount".into(),
            status: JobStatus::Completed,
            took: Duration::from_secs(2),
            totals: Totals {
                records_in: 12_345,
                records_out: 10,
                late: 3,
                late_in_part: 0,
                watermark: Timestamp::MAX,
            },
            read_here: 12_345,
            has_tables: false,
            vertices: vec![
                source,
                vertex("map-2", false, false),
                vertex("stdout", false, true),
            ],
            dead_letters: 1,
            dropped: 0,
            unwritten: 0,
            samples: vec![DeadLetter {
                vertex: "files".into(),
                origin: "a.txt:7".into(),
                raw: b"\xff\x1b[2J".to_vec(),
                reason: "not UTF-8".into(),
            }],
            survival: None,
        }
    }

    #[test]
    fn a_person_sees_rates_vertices_and_what_went_wrong() {
        let text = summary().to_text(false);
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
    fn steps_without_a_name_are_shown_when_asked_for_or_when_something_went_wrong() {
        let mut summary = summary();
        let text = summary.to_text(false);
        assert!(
            !text.contains("map-2") && text.contains("and a step without a name"),
            "{text}"
        );
        assert!(summary.to_text(true).contains("map-2"));
        summary.vertices[1].bad = 1;
        assert!(summary.to_text(false).contains("map-2"));
    }

    #[test]
    fn those_who_want_no_summary_are_told_what_went_wrong() {
        let mut summary = summary();
        summary.dead_letters = 1_234;
        summary.status = JobStatus::Drained;
        summary.dropped = 2;
        assert_eq!(
            summary.warnings(),
            [
                "wordcount was stopped before its input ended: the results are those of the first 12,345 records",
                "1,234 records could not be dealt with, the first at a.txt:7: not UTF-8",
                "2 bad records were dropped",
            ]
        );
        assert!(summary.nothing_good().is_none());
        summary.vertices[0].records_out = 0;
        let error = summary.nothing_good().unwrap().to_string();
        assert!(
            error.contains("1 record of \"files\"") && error.contains("a.txt:7"),
            "{error}"
        );
    }

    #[test]
    fn a_job_with_tables_gets_a_line_that_does_not_scroll_them_away_and_what_went_wrong() {
        let mut summary = summary();
        summary.has_tables = true;
        let text = summary.to_text(false);
        assert!(
            text.lines()
                .next()
                .unwrap()
                .ends_with("10 out, 3 late (-v shows the steps)")
        );
        assert!(!text.contains("  files   2") && text.contains("  1 dead letter:\n"));
        assert!(summary.to_text(true).contains("  files   2"));
        summary.totals.late = 0;
        (summary.dead_letters, summary.samples) = (0, Vec::new());
        assert_eq!(summary.to_text(false).lines().count(), 1);
    }

    #[test]
    fn a_single_record_is_told_as_one() {
        let mut summary = summary();
        summary.totals.late = 1;
        summary.dropped = 1;
        let text = summary.to_text(false);
        for line in [
            "  1 record came too late\n",
            "  1 bad record was dropped\n",
            "  1 dead letter:\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_job_that_was_stopped_to_go_on_later_is_told_as_stopped() {
        let summary = summary().with_checkpoints(CheckpointSummary {
            end: Some(JobEnd::Stopped),
            ..CheckpointSummary::default()
        });
        let text = summary.to_text(false);
        assert!(text.starts_with("wordcount stopped after"), "{text}");
        assert!(text.contains("  0 checkpoints"), "{text}");
        assert_eq!(summary.to_json()["fault_tolerance"]["checkpoints"], 0);
    }

    #[test]
    fn the_counts_of_a_job_with_a_guarantee_are_those_over_all_attempts() {
        let counted = |records_out, late| RecordCounts {
            records_out,
            late,
            ..RecordCounts::default()
        };
        let counts = |records_out, late| JobCounts {
            vertices: [("files".to_string(), counted(records_out, late))].into(),
            since: None,
        };
        let summary = summary().with_checkpoints(CheckpointSummary {
            counts: counts(20_000, 7),
            counts_before: counts(8_000, 4),
            ..CheckpointSummary::default()
        });
        let text = summary.to_text(false);
        assert!(text.contains("20,000 records in (6.00 k/s)"), "{text}");
        assert!(text.contains("7 records came too late"), "{text}");
    }

    #[test]
    fn a_program_gets_every_figure_as_a_number() {
        let value = summary().to_json();
        assert_eq!(value["records_in"], 12_345);
        assert_eq!(value["vertices"][0]["instances"], 2);
        assert_eq!(value["vertices"][0]["watermark"], "end");
        assert_eq!(value["dead_letters"]["samples"][0]["origin"], "a.txt:7");
    }
}
