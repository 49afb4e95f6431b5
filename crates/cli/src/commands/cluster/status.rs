//! `ardea cluster status`: a cluster, its hosts and its jobs.

use ardea::command_line::ClusterConnection;
use ardea::command_line::Context;
use ardea::console::Failure;
use ardea_rest::HostView;
use serde_json::json;

use crate::columns::table;
use crate::commands::list::jobs_table;
use crate::stdout;
use ardea::command_line::ClusterArgs;

/// Prints three tables, or an object.
pub fn run(place: &ClusterArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(place, context)?;
    let about = cluster.wait_for(cluster.client.about())?;
    let hosts = cluster.wait_for(cluster.client.hosts())?;
    let jobs = cluster.wait_for(cluster.client.list())?;
    if context.json {
        return stdout::print_json(&json!({ "cluster": about, "hosts": hosts, "jobs": jobs }));
    }
    let rows = [
        ("cluster", &about.name),
        ("interface", &cluster.client.base()),
        ("version", &about.version),
        ("state", &about.state),
        ("packages", &about.packages),
        ("scheduler", &about.scheduler),
        ("packing", &about.packing),
    ];
    let mut text = String::new();
    for (name, value) in rows {
        text += &format!("{name:9}  {value}\n");
    }
    text += &format!("\n{}", hosts_table(&hosts));
    if !jobs.is_empty() {
        text += &format!("\n{}", jobs_table(&jobs, false));
    }
    stdout::print(&text)
}

fn hosts_table(hosts: &[HostView]) -> String {
    let headings = [
        "host",
        "state",
        "address",
        ">pid",
        ">containers",
        "free",
        "leads",
    ];
    let rows: Vec<Vec<String>> = hosts
        .iter()
        .map(|host| {
            vec![
                host.name.clone(),
                state(host).to_string(),
                host.address.clone(),
                host.pid.to_string(),
                host.containers.len().to_string(),
                host.free.to_string(),
                host.leads.join(" "),
            ]
        })
        .collect();
    table(&headings, &rows)
}

fn state(host: &HostView) -> &'static str {
    match (host.drained, host.holds) {
        (false, _) => "up",
        (true, 0) => "drained",
        (true, _) => "draining",
    }
}
