//! `ardea examples`: the list of jobs, and finding one by its name.

use ardea::command_line::Context;
use ardea::console::Failure;
use ardea_config::nearest;
use ardea_examples::ExampleJob;
use serde_json::{Value, json};

use crate::misplaced_options;
use crate::stdout;

/// Prints the name and description of each job.
pub fn run(context: &Context) -> Result<(), Failure> {
    let jobs = ardea_examples::jobs();
    if context.json {
        let list: Vec<Value> = jobs
            .iter()
            .map(|job| json!({ "name": job.name, "about": job.about, "usage": job.usage }))
            .collect();
        return stdout::print_json(&Value::Array(list));
    }
    let width = jobs.iter().map(|job| job.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for job in jobs {
        text += &format!("{:width$}  {}\n", job.name, job.about);
    }
    stdout::print(&text)
}

/// Returns the job of this name.
pub fn find(name: &str) -> Result<&'static ExampleJob, Failure> {
    let jobs = ardea_examples::jobs();
    if name.starts_with('-') {
        let options = misplaced_options::names();
        let hint = match nearest(name, options.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "--help lists the options; a job's own options follow its name".into(),
        };
        return Err(Failure::usage(format!("there is no option {name}"), hint));
    }
    jobs.iter().find(|job| job.name == name).ok_or_else(|| {
        let names: Vec<&str> = jobs.iter().map(|job| job.name).collect();
        let hint = match nearest(name, names.iter().copied()) {
            Some(meant) => format!("did you mean {meant}? `ardea examples` lists them all"),
            None => format!("one of {}", names.join(", ")),
        };
        Failure::usage(format!("there is no job {name:?}"), hint)
    })
}

/// Returns the text that `--help` after a job's name prints.
pub fn usage(job: &ExampleJob) -> String {
    format!("{}\n\n{}\n", job.about, job.usage.trim_end())
}

/// Returns true if a job's arguments contain `--help` or `-h`.
pub fn asks_for_help(args: &[String]) -> bool {
    args.iter()
        .take_while(|arg| *arg != "--")
        .any(|arg| arg == "--help" || arg == "-h")
}
