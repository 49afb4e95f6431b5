//! Runs against real servers, which are killed.

use crate::Test;

#[cfg(not(all(feature = "kafka", feature = "postgres")))]
pub const ALL: &[Test] = &[];

#[cfg(all(feature = "kafka", feature = "postgres"))]
pub use real::ALL;

#[cfg(all(feature = "kafka", feature = "postgres"))]
mod real {
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Output, Stdio};

    use ardea_metastore::conformance::{Server, Skipped};

    use super::Test;
    use crate::program::{finish, output_of, run, start, summary, terminate, text, until};
    use crate::stops::{FORM, committed};

    pub const ALL: &[Test] = &[
        (
            "a_stop_loses_nothing_and_ends_in_time_also_where_the_server_is_gone",
            a_stop_loses_nothing_and_ends_in_time_also_where_the_server_is_gone,
        ),
        (
            "records_that_are_under_way_are_acknowledged_before_a_drained_job_ends",
            records_that_are_under_way_are_acknowledged_before_a_drained_job_ends,
        ),
        (
            "dead_letters_go_to_the_topic_that_a_setting_names",
            dead_letters_go_to_the_topic_that_a_setting_names,
        ),
        (
            "a_topic_that_is_not_there_ends_a_job_with_a_guarantee_at_once",
            a_topic_that_is_not_there_ends_a_job_with_a_guarantee_at_once,
        ),
    ];

    fn server(script: &str) -> Option<Server> {
        match Server::start(script) {
            Ok(server) => Some(server),
            Err(Skipped(why)) => {
                eprintln!("SKIPPED {script}: {why}");
                None
            }
        }
    }

    /// Returns the output of a server's client program.
    fn client(program: &str, words: &[&str]) -> String {
        let child = Command::new(program)
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let output = output_of(child.unwrap(), program);
        assert!(output.status.success(), "{program} {words:?}: {output:?}");
        text(&output.stdout)
    }

    /// A server, the job that writes to it, and a function that reads its contents.
    struct Store {
        server: Server,
        job: [String; 3],
        look: fn(&Store) -> String,
    }

    impl Store {
        fn kafka() -> Option<Store> {
            let server = server("kafka.sh")?;
            let job = [
                "to-kafka".into(),
                server.address().to_string(),
                "numbers".into(),
            ];
            let look = |store: &Store| messages(&store.job[1], "numbers", "%s\n");
            Some(Store { server, job, look })
        }

        fn postgres() -> Option<Store> {
            let server = server("postgres.sh")?;
            let url = format!("postgres://postgres@{}/postgres", server.address());
            client(
                "psql",
                &["-q", "-c", "create table numbers (n bigint)", &url],
            );
            let job = ["to-postgres".into(), url, "numbers".into()];
            let look = |store: &Store| client("psql", &["-Atc", "table numbers", &store.job[1]]);
            Some(Store { server, job, look })
        }

        /// Returns the number of stored numbers, which have to be those from 0 on, each once.
        fn count(&self) -> u64 {
            let mut numbers: Vec<u64> = (self.look)(self)
                .lines()
                .map(|line| line.parse().unwrap())
                .collect();
            numbers.sort_unstable();
            let count = numbers.len() as u64;
            assert!(numbers.into_iter().eq(0..count), "{:?}", self.job);
            count
        }
    }

    /// Returns the committed messages of a topic that is not written to any more, each in a format
    /// of kcat. The end of a topic that is written to may never be reached.
    fn messages(brokers: &str, topic: &str, form: &str) -> String {
        let committed = "isolation.level=read_committed";
        let words = [
            "-C", "-q", "-e", "-b", brokers, "-t", topic, "-X", committed, "-f", form,
        ];
        client("kcat", &words)
    }

    /// Returns true if there is a topic with a message.
    fn has_message(brokers: &str, topic: &str) -> bool {
        let listed = client("kcat", &["-L", "-b", brokers]);
        let first = ["-C", "-q", "-e", "-c", "1", "-b", brokers, "-t", topic];
        listed.contains(&format!("\"{topic}\"")) && !client("kcat", &first).is_empty()
    }

    /// Runs a job until it has made another checkpoint, calls `act`, and stops the job.
    fn stopped_after(folder: &Path, store: &Store, within: &str, act: impl FnOnce()) -> Output {
        let job = store.job.each_ref().map(String::as_str);
        let within = format!("recovery.stop_within={within}");
        let settings = ["checkpoints.every=100ms", "--set", &within, "--"];
        let earlier = committed(folder);
        let child = start(folder, &[&FORM[..], &settings, &job].concat());
        until("a checkpoint is made", || committed(folder) > earlier);
        act();
        terminate(&child);
        finish(child)
    }

    fn a_stop_loses_nothing_and_ends_in_time_also_where_the_server_is_gone() {
        for store in [Store::kafka(), Store::postgres()].into_iter().flatten() {
            let folder = tempfile::tempdir().unwrap();
            let at = folder.path();
            let output = stopped_after(at, &store, "90s", || ());
            assert_eq!(output.status.code(), Some(4), "{output:?}");
            let written = summary(&output)["records_in"].as_u64().unwrap();
            assert_eq!(store.count(), written, "{:?}", store.job);

            let output = stopped_after(at, &store, "2s", || store.server.kill());
            assert_eq!(output.status.code(), Some(6), "{output:?}");
            let told = text(&output.stderr);
            for part in [
                "could not be made within 2s",
                "run again, it goes on from the checkpoint",
            ] {
                assert!(told.contains(part), "{part}: {told}");
            }

            store.server.restart();
            let output = stopped_after(at, &store, "90s", || ());
            assert_eq!(output.status.code(), Some(4), "{output:?}");
            let all = summary(&output)["records_in"].as_u64().unwrap();
            assert!(all > written);
            assert_eq!(store.count(), all, "{:?}", store.job);
        }
    }

    fn records_that_are_under_way_are_acknowledged_before_a_drained_job_ends() {
        let Some(store) = Store::kafka() else { return };
        let folder = tempfile::tempdir().unwrap();
        let job = store.job.each_ref().map(String::as_str);
        let child = start(
            folder.path(),
            &[&["run", "--json", "--"][..], &job].concat(),
        );
        let brokers = &store.job[1];
        until("some are written", || has_message(brokers, "numbers"));
        terminate(&child);
        let output = finish(child);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let written = summary(&output)["records_in"].as_u64().unwrap();
        assert_eq!(store.count(), written);
    }

    fn dead_letters_go_to_the_topic_that_a_setting_names() {
        let Some(server) = server("kafka.sh") else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::write(at.join("in"), "1\ntwo\n3\n\n").unwrap();
        let brokers = server.address().to_string();
        let output = run(
            at,
            &format!("run --set dead_letters=kafka:{brokers}/bad parse in out"),
        );
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let letters = messages(&brokers, "bad", "%s|%h\n");
        let letters: Vec<_> = letters.lines().collect();
        assert_eq!(letters.len(), 2, "{letters:?}");
        for (letter, raw, position) in [(letters[0], "two", "2"), (letters[1], "", "4")] {
            let (value, headers) = letter.split_once('|').unwrap();
            assert!(value.contains(raw), "{letter}");
            for part in [
                "ardea.job=parse",
                "ardea.vertex=numbers",
                "ardea.reason=",
                position,
            ] {
                assert!(headers.contains(part), "{part}: {headers}");
            }
        }

        server.kill();
        let output = run(
            at,
            &format!("run --set dead_letters=kafka:{brokers}/bad parse in unfinished"),
        );
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let told = text(&output.stderr);
        assert!(
            told.contains("dead letter") && told.contains("bad"),
            "{told}"
        );
        assert!(!at.join("unfinished").exists());
    }

    fn a_topic_that_is_not_there_ends_a_job_with_a_guarantee_at_once() {
        let Some(server) = server("kafka-strict.sh") else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let brokers = server.address().to_string();
        let words = ["checkpoints.every=100ms", "to-kafka", &brokers, "nowhere"];
        let output = finish(start(folder.path(), &[&FORM[..], &words].concat()));
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let told = text(&output.stderr);
        assert!(
            told.contains("nowhere") && told.contains("create the topic"),
            "{told}"
        );
        assert_eq!(
            summary(&output)["fault_tolerance"]["recoveries"],
            0,
            "{output:?}"
        );
    }
}
