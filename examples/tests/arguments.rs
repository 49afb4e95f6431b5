//! Tests of the arguments of all jobs, and that records between instances can be sent to another
//! process.

use ardea::core::{ErrorCode, Routing};
use ardea::engine::{Job, Parallelisms};
use ardea_examples::jobs;

fn args(line: &str) -> Vec<String> {
    line.split_whitespace().map(String::from).collect()
}

/// Returns a file for each one required by the job, by its usage line.
fn files_of(usage: &str) -> String {
    let line = usage.lines().next().unwrap_or_default();
    let is_file = |word: &&str| word.chars().all(|letter| letter.is_ascii_uppercase());
    let files: Vec<String> = (1..=line.split_whitespace().filter(is_file).count())
        .map(|number| format!("in-{number}"))
        .collect();
    files.join(" ")
}

#[test]
fn every_job_has_a_name_of_its_own_and_says_how_to_call_it() {
    for (place, job) in jobs().iter().enumerate() {
        assert!(
            jobs()[..place].iter().all(|other| other.name != job.name),
            "{}",
            job.name
        );
        assert!(
            job.usage.starts_with(&format!("ardea run {}", job.name)),
            "{}",
            job.name
        );
        assert!(
            !job.about.is_empty() && !job.about.ends_with('.'),
            "{}",
            job.name
        );
    }
}

#[test]
fn every_job_compiles_to_a_graph() {
    let threads = std::num::NonZeroU32::MIN.saturating_add(1);
    for job in jobs() {
        let pipeline = (job.build)(&args(&files_of(job.usage))).unwrap();
        assert_eq!(pipeline.name(), job.name);
        assert!(
            pipeline.to_dag(threads).unwrap().vertices().len() > 2,
            "{}",
            job.name
        );
    }
}

#[test]
fn every_job_can_be_spread_over_processes() {
    for job in jobs() {
        let pipeline = (job.build)(&args(&files_of(job.usage))).unwrap();
        let program = pipeline.program(&Parallelisms::new()).unwrap();
        for edge in program.dag.edges() {
            let stays = matches!(edge.wanted_routing(), Routing::Forward);
            assert!(
                stays || edge.wanted_codec().is_some(),
                "{}: {edge:?}",
                job.name
            );
        }
    }
}

#[test]
fn what_a_job_does_not_know_is_refused_with_a_hint() {
    for job in jobs() {
        let files = files_of(job.usage);
        for unknown in ["--no-such-option 1", "and more"] {
            let error = (job.build)(&args(&format!("{files} {unknown}"))).unwrap_err();
            assert_eq!(
                error.code(),
                ErrorCode::InvalidConfig,
                "{}: {error}",
                job.name
            );
            assert!(
                error.to_string().contains("--help"),
                "{}: {error}",
                job.name
            );
        }
    }
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let lines = [
        ("flights", "--speed 0"),
        ("flights", "--speed fast"),
        ("flights", "--out-of-order 3"),
        ("wordcount", "in.txt --top 0"),
        ("sessions", "in.txt --gap 0s"),
        ("sensors", "--rate -1"),
        ("sensors", "--listen 9000 --rate 5"),
        ("sensors", "--seconds=5 --listen 9000"),
        ("wordcount", "in.txt --top 5 --top 6"),
        ("tail", "in.txt --from middle"),
        ("payments", "--seconds"),
    ];
    for (name, line) in lines {
        let job = jobs().iter().find(|job| job.name == name).unwrap();
        let error = (job.build)(&args(line)).unwrap_err();
        assert_eq!(
            error.code(),
            ErrorCode::InvalidConfig,
            "{name} {line}: {error}"
        );
    }
}
