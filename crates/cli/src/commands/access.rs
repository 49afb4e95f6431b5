//! `ardea token` and `ardea audit`: the access to a cluster.

use ardea::command_line::{ClusterArgs, ClusterConnection, Context};
use ardea::console::Failure;
use ardea::console::format_number::moment;
use ardea_rest::{AuditEntry, TokenRequest, TokenView};
use serde_json::{Value, json};

use crate::args::{AuditArgs, TokenCommand, TokenCreateArgs, TokenRevokeArgs};
use crate::columns::table;
use crate::stdout;

/// Runs a subcommand of `ardea token`.
pub fn run_token(command: TokenCommand, context: &Context) -> Result<(), Failure> {
    match command {
        TokenCommand::Create(args) => create(&args, context),
        TokenCommand::List(place) => list(&place, context),
        TokenCommand::Revoke(args) => revoke(&args, context),
    }
}

fn create(args: &TokenCreateArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.place, context)?;
    let request = TokenRequest {
        name: args.name.clone(),
        role: args.role.into(),
        may_upload: args.upload,
        expires_in_s: args.expires.map(|time| time.as_secs().max(1)),
    };
    let new = cluster.wait_for(cluster.client.create_token(&request))?;
    context.print(&format!("{}\n", new.secret), || json!(new))
}

fn list(place: &ClusterArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(place, context)?;
    let tokens = cluster.wait_for(cluster.client.tokens())?;
    let rows: Vec<Vec<String>> = tokens.iter().map(of_token).collect();
    let headings = ["token", "role", "upload", "created", "expires"];
    context.print(&table(&headings, &rows), || json!(tokens))
}

fn of_token(token: &TokenView) -> Vec<String> {
    vec![
        token.name.clone(),
        token.role.as_str().to_string(),
        if token.may_upload { "yes" } else { "" }.to_string(),
        moment(token.created_ms),
        token.expires_ms.map_or("never".into(), moment),
    ]
}

fn revoke(args: &TokenRevokeArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.place, context)?;
    cluster.wait_for(cluster.client.revoke_token(&args.name))?;
    context.print_outcome("token", &args.name, "is revoked")
}

/// Prints the latest actions on all hosts, in the order of time.
pub fn run_audit(args: &AuditArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.place, context)?;
    let hosts = cluster.wait_for(cluster.client.hosts())?;
    let mut entries: Vec<(String, AuditEntry)> = Vec::new();
    let mut lost = 0;
    for host in hosts {
        let client = cluster.client.at(&host.api)?;
        let log = cluster.wait_for(client.audit(args.limit))?;
        lost += log.lost_count;
        entries.extend(log.entries.into_iter().map(|it| (host.name.clone(), it)));
    }
    entries.sort_by_key(|(_, entry)| entry.at_ms);
    if context.json {
        let entries = entries.iter().map(|(host, entry)| {
            let mut entry = json!(entry);
            entry["host"] = json!(host);
            entry
        });
        let entries: Vec<Value> = entries.collect();
        return stdout::print_json(&json!({ "entries": entries, "lost_count": lost }));
    }
    let rows: Vec<Vec<String>> = entries.iter().map(of_entry).collect();
    let headings = [
        "time", "host", "caller", "role", "address", "method", "path", ">status",
    ];
    let mut text = table(&headings, &rows);
    if lost > 0 {
        text += &format!("{lost} entries could not be written\n");
    }
    stdout::print(&text)
}

fn of_entry((host, entry): &(String, AuditEntry)) -> Vec<String> {
    vec![
        moment(entry.at_ms),
        host.clone(),
        entry.caller.clone(),
        entry.role.as_str().to_string(),
        entry.address.clone().unwrap_or_default(),
        entry.method.clone(),
        entry.path.clone(),
        entry.status.to_string(),
    ]
}
