//! The Grafana dashboard of the documentation names metrics and labels of the catalogue.

use std::collections::BTreeSet;

use ardea_metrics::catalogue::{self, Kind};
use serde_json::Value;

const DASHBOARD: &str = include_str!("../../../docs/grafana/ardea.json");

/// Collects the texts of all queries below a value.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("expr" | "query", Value::String(text)) => found.push(text.clone()),
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// Returns the names of metrics in a query.
fn names(query: &str) -> Vec<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = query.split(|letter| !is_part(letter));
    words.filter(|word| word.starts_with("ardea_")).collect()
}

/// Returns the labels by which a query groups.
fn grouping(query: &str) -> BTreeSet<&str> {
    let lists = query.split("by (").skip(1);
    let lists = lists.filter_map(|rest| rest.split_once(')'));
    let labels = lists.flat_map(|(labels, _)| labels.split(','));
    labels.map(str::trim).collect()
}

#[test]
fn each_metric_of_the_dashboard_is_in_the_catalogue_with_its_labels() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    let mut shown = BTreeSet::new();
    for query in &found {
        for name in names(query) {
            let metric = catalogue::find(name);
            let metric = metric.unwrap_or_else(|| panic!("{name} is not in the catalogue"));
            shown.insert(metric.name);
            let is_rate = query.contains("rate(") || query.contains("increase(");
            assert_eq!(is_rate, metric.kind != Kind::Gauge, "{query}");
            for label in grouping(query) {
                let is_known = metric.labels.contains(&label) || label == "le";
                assert!(is_known, "{name} has no label {label}: {query}");
            }
        }
    }
    assert!(shown.len() > 20, "{shown:?}");
}

#[test]
fn each_panel_has_its_own_number_and_explains_itself() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|it| it["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|it| it["type"] != "row") {
        let text = panel["description"].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{panel}");
    }
}
