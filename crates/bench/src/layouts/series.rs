//! The runs of `ardea bench layouts`, with a table and a chart of them.

use ardea_core::Result;
use serde_json::Value;

use super::params::{LayoutPacking, LayoutTransport, LayoutsParams};
use super::run::{LayoutResult, LayoutRun};
use crate::chart::{Axis, Chart, Scale, Series, write_table};
use crate::cluster::HostNamespaces;
use crate::report::Report;

/// The columns of the table.
const COLUMNS: [&str; 9] = [
    "layout",
    "packing",
    "transport",
    "mean_ms",
    "p50_ms",
    "p99_ms",
    "inside_workers_percent",
    "inside_hosts_percent",
    "expected_inside_hosts_percent",
];

/// The columns of the table of `--reassign`.
const MOVE_COLUMNS: [&str; 6] = [
    "layout",
    "transport",
    "moved_at_s",
    "before_move_ms",
    "after_move_ms",
    "worst_second_ms",
];

/// Runs the topology on each layout, with each transport and packing policy. Each result is passed
/// to `report` when it is complete. A layout of several hosts is skipped, with the reason as its
/// only figure, if there can be none.
///
/// # Errors
/// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are invalid; errors of
/// the cluster; [`WriteFailed`](ardea_core::ErrorCode::WriteFailed) if the table or the chart
/// cannot be written; the failure of `report`.
pub fn run_layouts(
    params: &LayoutsParams,
    progress: &mut dyn FnMut(&str),
    report: &mut dyn FnMut(Report) -> Result<()>,
) -> Result<()> {
    params.check()?;
    let runs = runs(params);
    let hosts = runs.iter().map(|run| run.layout.hosts).max().unwrap_or(1);
    let namespaces = (hosts > 1).then(|| HostNamespaces::new(hosts as usize));
    let mut results = Vec::new();
    for run in runs {
        let name = series_name(&run);
        progress(&format!("{}, {name}", run.layout));
        let result = match &namespaces {
            Some(Err(why)) if run.layout.hosts > 1 => {
                progress(&format!("SKIPPED {}: {why}", run.layout));
                run.skipped(&why.to_string())
            }
            namespaces => {
                let namespaces = namespaces.as_ref().and_then(|it| it.as_ref().ok());
                // Messages on their way are lost when instances move.
                run.measure("layouts", namespaces, run.reassign.is_none(), progress)?
            }
        };
        report(result.report.clone())?;
        results.push((name, result));
    }
    let Some(folder) = &params.run.folder else {
        return Ok(());
    };
    let topology = params.topology.name();
    let (kind, columns, chart) = match params.reassign {
        Some(_) => {
            let chart = chart_of_seconds(topology, &results);
            ("reassign", &MOVE_COLUMNS[..], chart)
        }
        None => ("layouts", &COLUMNS[..], chart_of_layouts(params, &results)),
    };
    chart.write(&folder.join(format!("{kind}-{topology}.svg")))?;
    let rows: Vec<Value> = results.iter().map(|it| it.1.report.to_json()).collect();
    let table = folder.join(format!("{kind}-{topology}.md"));
    write_table(&table, columns, rows.iter())
}

/// Returns the runs, those of one layout after another.
fn runs(params: &LayoutsParams) -> Vec<LayoutRun<'_>> {
    let packings = match params.reassign {
        Some(_) => &[LayoutPacking::RoundRobin][..],
        None => &params.packing,
    };
    let mut runs = Vec::new();
    for &layout in &params.layouts {
        for &packing in packings {
            for &transport in &params.transport {
                // Without a second worker of a host, nothing passes within it.
                let is_same = layout.workers == layout.hosts && params.transport.len() > 1;
                if is_same && transport == LayoutTransport::Tcp {
                    continue;
                }
                runs.push(LayoutRun {
                    topology: params.topology,
                    layout,
                    transport,
                    packing,
                    rate: params.rate,
                    reassign: params.reassign,
                    params: &params.run,
                });
            }
        }
    }
    runs
}

fn series_name(run: &LayoutRun<'_>) -> String {
    format!("{} over {}", run.packing.name(), run.transport.name())
}

/// Returns the chart of the mean latency by layout.
fn chart_of_layouts(params: &LayoutsParams, results: &[(String, LayoutResult)]) -> Chart {
    let names: Vec<String> = params.layouts.iter().map(ToString::to_string).collect();
    let mut series: Vec<Series> = Vec::new();
    for (name, result) in results {
        let Some(mean) = result.report.figure("mean_ms").as_f64() else {
            continue;
        };
        let layout = result.report.to_json()["layout"].clone();
        let at = names.iter().position(|name| layout == name.as_str());
        let point = (at.unwrap_or(0) as f64, mean);
        Series::add(&mut series, name, point);
    }
    Chart {
        title: format!("Mean latency of the topology {}", params.topology.name()),
        x: Axis::new("hosts (N) and workers (W)", Scale::Linear),
        y: Axis::new("mean latency, ms", Scale::Linear),
        names,
        marks: Vec::new(),
        series,
    }
}

/// Returns the chart of the mean latency by second, with the changes of placement.
fn chart_of_seconds(topology: &str, results: &[(String, LayoutResult)]) -> Chart {
    let layout = |result: &LayoutResult| result.report.to_json()["layout"].clone();
    let series = results.iter().map(|(name, result)| Series {
        name: format!("{}, {name}", layout(result).as_str().unwrap_or_default()),
        points: result.seconds.clone(),
        circled: None,
    });
    let marks = results.iter().flat_map(|(_, result)| &result.moved_at);
    Chart {
        title: format!("Latency of the topology {topology} while instances move"),
        x: Axis::new("seconds after the start", Scale::Linear),
        y: Axis::new("mean latency, ms", Scale::Linear),
        names: Vec::new(),
        marks: marks.map(|at| (*at, "instances move".into())).collect(),
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::flags;

    #[test]
    fn a_layout_without_traffic_within_hosts_has_no_second_transport() {
        let params = LayoutsParams {
            layouts: vec!["1N2W".parse().unwrap(), "2N2W".parse().unwrap()],
            ..flags::defaults()
        };
        let count = |layout: &str| {
            let runs = runs(&params).into_iter();
            runs.filter(|run| run.layout.to_string() == layout).count()
        };
        assert_eq!((count("1N2W"), count("2N2W")), (4, 2));
        let params = LayoutsParams {
            reassign: Some(Duration::from_secs(9)),
            ..params
        };
        let runs = runs(&params);
        assert!(
            runs.iter()
                .all(|it| it.packing == LayoutPacking::RoundRobin)
        );
    }

    #[test]
    fn a_skipped_layout_has_a_row_and_no_bar() {
        let params: LayoutsParams = flags::defaults();
        let results: Vec<_> = runs(&params)
            .iter()
            .map(|run| (series_name(run), run.skipped("no root")))
            .collect();
        assert!(chart_of_layouts(&params, &results).series.is_empty());
        let file = tempfile::NamedTempFile::new().unwrap();
        let rows: Vec<Value> = results.iter().map(|it| it.1.report.to_json()).collect();
        write_table(file.path(), &COLUMNS, rows.iter()).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(text.lines().count(), results.len() + 2);
        assert!(text.contains("| 8N8W | traffic | auto | – |"), "{text}");
    }
}
