//! Output of containers: it is bounded under any failure, and discarded output is reported.

use std::fs;
use std::path::{Path, PathBuf};

use crate::arena::Arena;

/// A job that prints some hundred kilobytes per second, for ever.
const CHATTY: &str = "
name: chatty
spouts:
  - { name: words, component: words, settings: { rate: 20000 } }
bolts:
  - { name: out, component: print, inputs: [{ from: words, grouping: shuffle }] }
";

/// Three files of 64 KiB, and the output of a moment on a busy machine.
const MOST_BYTES: u64 = 3 * (64 << 10) + (4 << 20);

/// Returns the files of standard output of all containers.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&path)),
            Ok(_) if name.starts_with("stdout.log") => found.push(path),
            _ => {}
        }
    }
    found
}

fn bytes(arena: &Arena) -> u64 {
    let files = files(&arena.cluster()).into_iter();
    files
        .filter_map(|path| Some(path.metadata().ok()?.len()))
        .sum()
}

/// Returns the position at which the files of the output begin, as stored by the cluster.
fn position(arena: &Arena) -> u64 {
    let all = files(&arena.cluster()).into_iter();
    let at = all.filter(|path| path.ends_with("stdout.log.at"));
    let read = at.filter_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    read.max().unwrap_or(0)
}

fn chatty() -> Arena {
    let arena = Arena::new();
    let bounds = "log_size = \"64KiB\"\nlog_files = 3\nlog_kept_size = \"128KiB\"\n";
    arena.write("ardea.toml", &format!("[cluster]\nport = 0\n{bounds}"));
    arena.write("chatty.yaml", CHATTY);
    arena.succeed("cluster start --workers 2");
    arena.succeed("submit chatty.yaml --set cluster.scheduler=hosts");
    arena
}

pub fn what_a_container_prints_is_bounded_and_what_is_left_out_is_told() {
    let arena = chatty();
    arena.until("the loss is told", || {
        arena
            .succeed("describe chatty")
            .contains("of its output are not kept")
    });
    assert!(bytes(&arena) < MOST_BYTES, "{} bytes", bytes(&arena));
    // The host is shown by the name that `drain` takes.
    for command in ["describe", "plan", "top"] {
        let line = match command {
            "top" => "top chatty --once".to_string(),
            _ => format!("{command} chatty"),
        };
        let told = arena.succeed(&line);
        assert!(told.contains("host-1") || told.contains("host-2"), "{told}");
    }
    let left_out = "ardea_output_removed_bytes_total";
    arena.until("the loss is measured", || {
        let samples = arena.samples("chatty", left_out);
        samples.iter().any(|(_, value)| *value > 0.0)
    });
    let errors = arena.succeed("logs chatty --source stderr --tail 10000");
    assert!(errors.contains("is dropped from now on"), "{errors}");
}

pub fn a_container_bounds_its_output_while_no_host_is_up_and_so_is_what_it_leaves() {
    let arena = chatty();
    arena.until("it prints", || position(&arena) > 0);
    arena.succeed("cluster stop");
    let before = position(&arena);
    arena.until("it goes on", || position(&arena) > before + (1 << 20));
    assert!(bytes(&arena) < MOST_BYTES, "{} bytes", bytes(&arena));
    arena.succeed("cluster start --workers 2");
    arena.succeed("kill chatty --yes");
    arena.until("what is kept of it is bounded", || {
        bytes(&arena) <= 128 << 10
    });
}
