//! Topologies from files, built from the components that come with ardea: `ardea run FILE.yaml`.

use std::fs::{self, File};
use std::path::Path;

use crate::ardea::{ardea, finish, head_1, run};
use crate::served::Served;

/// Creates a file with a topology that prints random words, with these settings of the spout.
fn printed_words(folder: &Path, settings: &str) -> String {
    let yaml = format!(
        "
name: printed
spouts:
  - {{ name: words, component: words, settings: {settings} }}
bolts:
  - {{ name: out, component: print, inputs: [{{ from: words, grouping: global }}] }}
"
    );
    let path = folder.join("printed.yaml");
    fs::write(&path, yaml).unwrap();
    path.display().to_string()
}

#[test]
fn results_that_can_not_be_written_fail_the_job_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // An endless topology, which ends because it can't write.
    let file = printed_words(folder.path(), "{}");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = ardea(&["run", &file]).stdout(full).spawn().unwrap();
    let finished = finish(child);
    assert_eq!(finished.code, Some(3), "{finished:?}");
    assert!(finished.err.contains("ARD-302"), "{finished:?}");
    assert!(
        !finished.err.contains("could not be dealt with"),
        "{finished:?}"
    );
}

#[test]
fn a_reader_of_printed_tuples_may_go() {
    let folder = tempfile::tempdir().unwrap();
    let file = printed_words(folder.path(), "{}");
    head_1(&["run", &file]);
    head_1(&["-q", "run", &file]);
}

#[test]
fn more_instances_than_a_cluster_would_take_are_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = printed_words(folder.path(), "{ total: 1 }");
    let yaml = fs::read_to_string(&file).unwrap();
    let many = yaml.replace(
        "component: print,",
        "component: print, parallelism: 100000,",
    );
    fs::write(&file, many).unwrap();
    let finished = run(&["run", &file]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    let told = "\"out\" has 100000 instances";
    assert!(
        finished.err.contains("ARD-101") && finished.err.contains(told),
        "{finished:?}"
    );
}

#[test]
fn a_metrics_sink_that_there_is_not_is_refused_before_anything_is_stored() {
    let served = Served::new(None);
    let folder = served.folder.path();
    printed_words(folder, "{ total: 1 }");
    fs::write(
        folder.join("ardea.toml"),
        "[metrics]\nsinks = \"json-lines:x, promtheus:127.0.0.1:0\"\n",
    )
    .unwrap();
    for line in ["submit printed.yaml --detach", "plan printed.yaml"] {
        let finished = served.run(line);
        assert_eq!(finished.code, Some(2), "{line}: {finished:?}");
        for part in ["ARD-102", "ardea.toml:2", "did you mean prometheus?"] {
            assert!(finished.err.contains(part), "{part}: {finished:?}");
        }
    }
    assert_eq!(served.succeed("list --json").trim(), "[]");
}
