//! `ardea why`: the causes for which a job is slow, late or stuck.

use std::time::Duration;

use ardea::command_line::ClusterConnection;
use ardea::command_line::Context;
use ardea::console::Failure;
use ardea::console::format_number::{duration, short};
use ardea_config::readable_bytes;
use ardea_rest::{CauseView, DiagnosisView, FigureUnit, FigureView};
use serde_json::json;

use crate::args::RemoteJob;

/// Prints the causes, the most severe first.
pub fn run(args: &RemoteJob, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of_job(&args.place, &args.job, context)?;
    let found = cluster.wait_for(cluster.client.why(&args.job))?;
    context.print(&text(&found), || json!(found))
}

fn text(found: &DiagnosisView) -> String {
    let mut text = format!("{} is {}\n", found.job, found.phase.as_str());
    if !found.is_measured {
        text += "its processes have not reported metrics yet\n";
    }
    if found.causes.is_empty() {
        text += "no figure shows a problem\n";
    }
    for (number, cause) in (1..).zip(&found.causes) {
        text += &of_cause(number, cause);
    }
    text
}

fn of_cause(number: usize, cause: &CauseView) -> String {
    let percent = (cause.severity * 100.0).round();
    let kind = cause.kind.as_str().replace('_', " ");
    let subject = match &cause.subject {
        Some(subject) => format!(" ({subject})"),
        None => String::new(),
    };
    let mut text = format!("\n{number}. {kind}{subject}, severity {percent} %\n");
    text += &format!("   {}\n", cause.summary);
    for figure in &cause.figures {
        text += &format!("     {}: {}\n", figure.name, value(figure));
    }
    text + &format!("   remedy: {}\n", cause.advice)
}

fn value(figure: &FigureView) -> String {
    let value = figure.value;
    match figure.unit {
        FigureUnit::Ratio => format!("{:.0} %", value * 100.0),
        FigureUnit::Seconds => {
            duration(Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::MAX))
        }
        FigureUnit::Bytes => readable_bytes(value.max(0.0) as u64),
        FigureUnit::Count => short(value),
        FigureUnit::PerSecond => format!("{}/s", short(value)),
        FigureUnit::Cores => format!("{value:.2} cores"),
    }
}

#[cfg(test)]
mod tests {
    use ardea_rest::{CauseKind, Phase};

    use super::*;

    #[test]
    fn causes_are_printed_with_their_figures_and_remedies() {
        let figure = |name: &str, value, unit| FigureView {
            name: name.into(),
            value,
            unit,
        };
        let mut found = DiagnosisView {
            job: "word-count".into(),
            phase: Phase::Running,
            at_ms: 0,
            is_measured: true,
            causes: vec![CauseView {
                kind: CauseKind::SlowSink,
                subject: Some("write".into()),
                severity: 0.95,
                summary: "the sink write uses all of its time".into(),
                figures: vec![
                    figure("busy of write", 0.99, FigureUnit::Ratio),
                    figure("records", 950.0, FigureUnit::PerSecond),
                ],
                advice: "give it more instances".into(),
            }],
        };
        let expected = "\
word-count is running

1. slow sink (write), severity 95 %
   the sink write uses all of its time
     busy of write: 99 %
     records: 950/s
   remedy: give it more instances
";
        assert_eq!(text(&found), expected);
        found.causes.clear();
        assert!(text(&found).contains("no figure shows a problem"));
    }
}
