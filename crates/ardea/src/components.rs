//! Components that come with Ardea, for topologies from YAML files: `ardea submit word-count.yaml`
//! needs no program.
//!
//! | component | purpose | settings |
//! |---|---|---|
//! | spout `words` | emits random words, field `word` | `rate` words per second of each instance (unlimited); `total` words of each instance (unlimited); `vocabulary` number of different words (1000); `seed` (1) |
//! | spout `lines` | emits the lines of a file or of the files of a directory, decompressed, field `line`; a failed tuple is emitted once more | `file`; `repeat` starts again at the end (false) |
//! | bolt `split` | splits a field into lowercase words, field `word` | `field` (line) |
//! | bolt `count` | counts the values of a field; periodically and at the end emits the changed counts, fields `word` and `count` | `field` (word); `every` (1s) |
//! | bolt `print` | prints tuples, one per line, values separated by tabs | none |
//!
//! ```
//! let topology = ardea::components::builtin().topology("
//! name: word count
//! spouts:
//!   - name: words
//!     component: words
//!     settings: { total: 1000 }
//! bolts:
//!   - name: counts
//!     component: count
//!     parallelism: 2
//!     inputs: [{ from: words, grouping: fields, fields: [word] }]
//! ")?;
//! assert_eq!(topology.name(), "word count");
//! # Ok::<(), ardea::Error>(())
//! ```

mod count;
mod lines;
mod print;
mod split;
mod words;

mod table;

use ardea_topology::Registry;

pub use table::{COMPONENTS, ComponentInfo, ComponentKind, SettingInfo};

/// Returns a registry of all built-in components; add your own with [`Registry::with_bolt`] and its
/// siblings.
pub fn builtin() -> Registry {
    Registry::new()
        .with_spout("words", words::Words::of)
        .with_spout("lines", lines::Lines::of)
        .with_bolt("split", split::Split::of)
        .with_bolt("count", count::Count::of)
        .with_bolt("print", print::Print::of)
}

#[cfg(test)]
mod tests {
    use ardea_connectors::files;
    use ardea_topology::{Bolt, Collector, Outcome, Tuple};

    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    /// A bolt that stores the last count of each word.
    struct Keep(Arc<Mutex<BTreeMap<String, i64>>>);

    impl Bolt for Keep {
        fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
            let word = tuple.str("word")?.to_string();
            self.0.lock().unwrap().insert(word, tuple.int("count")?);
            Ok(())
        }
    }

    fn run(spout: &str, reliability: &str) -> BTreeMap<String, i64> {
        let kept = Arc::new(Mutex::new(BTreeMap::new()));
        let keep = Arc::clone(&kept);
        let registry = builtin().with_bolt("keep", move |_| Ok(Keep(Arc::clone(&keep))));
        let yaml = format!(
            "
name: test
config: {{ reliability: {reliability} }}
spouts:
  - {spout}
bolts:
  - name: split
    component: split
    parallelism: 2
    settings: {{ field: FIELD }}
    inputs: [{{ from: texts, grouping: shuffle }}]
  - name: counts
    component: count
    parallelism: 2
    settings: {{ every: 10ms }}
    inputs: [{{ from: split, grouping: fields, fields: [word] }}]
  - name: keep
    component: keep
    inputs: [{{ from: counts, grouping: global }}]
"
        );
        let field = if spout.contains("lines") {
            "line"
        } else {
            "word"
        };
        let topology = registry.topology(&yaml.replace("FIELD", field)).unwrap();
        topology.run().unwrap();
        let kept = kept.lock().unwrap();
        kept.clone()
    }

    #[test]
    fn the_words_of_a_text_are_counted_by_components_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "To be, or not\nto be\n\nthat IS the question").unwrap();
        for (reliability, instances) in [("at-most-once", 1), ("at-least-once", 2)] {
            let spout = format!(
                "{{ name: texts, component: lines, parallelism: {instances}, settings: {{ file: {} }} }}",
                path.display()
            );
            let counts = run(&spout, reliability);
            assert_eq!((counts["to"], counts["be"], counts["is"]), (2, 2, 1));
            assert_eq!(counts.len(), 8, "{counts:?}");
        }
    }

    #[test]
    fn compressed_files_of_a_directory_are_read_by_several_instances() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.gz", "to be\nor not\n"),
            ("b.zst", "to be\nthat\nis"),
            ("c", "the\nquestion"),
            (".hidden", "never\nnever\n"),
        ] {
            let path = folder.path().join(name);
            let compression = files::Compression::of_name(&path);
            let mut file = files::PartFile::create(path, compression, |_| true).unwrap();
            file.write(text.as_bytes()).unwrap();
            file.finish(false).unwrap();
        }
        for instances in 1..4 {
            let spout = format!(
                "{{ name: texts, component: lines, parallelism: {instances}, settings: {{ file: {} }} }}",
                folder.path().display()
            );
            let counts = run(&spout, "at-least-once");
            assert_eq!((counts["to"], counts["be"], counts["question"]), (2, 2, 1));
            assert_eq!(counts.len(), 8, "{counts:?}");
        }
    }

    #[test]
    fn damaged_compressed_data_fails_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.gz");
        std::fs::write(&path, "no gzip").unwrap();
        let yaml = format!(
            "
name: damaged
spouts:
  - {{ name: texts, component: lines, settings: {{ file: {} }} }}
bolts:
  - {{ name: split, component: split, inputs: [{{ from: texts, grouping: shuffle }}] }}
",
            path.display()
        );
        let error = builtin().topology(&yaml).unwrap().run().unwrap_err();
        assert_eq!(error.code(), ardea_core::ErrorCode::ReadFailed, "{error}");
        assert!(error.to_string().contains("text.gz"), "{error}");
    }

    #[test]
    fn random_words_are_as_many_as_were_asked_for() {
        let spout = "{ name: texts, component: words, parallelism: 2, settings: { total: 5000, vocabulary: 10 } }";
        let counts = run(spout, "at-most-once");
        assert_eq!(counts.values().sum::<i64>(), 10_000);
        assert_eq!(counts.len(), 10);
    }

    #[test]
    fn wrong_settings_are_refused_before_anything_runs() {
        for settings in [
            "{ rate: 0 }",
            "{ rate: -1 }",
            "{ vocabulary: 0 }",
            "{ speed: 1 }",
        ] {
            let yaml = format!(
                "{{name: t, spouts: [{{ name: w, component: words, settings: {settings} }}]}}"
            );
            let error = builtin().topology(&yaml).unwrap_err();
            assert_eq!(
                error.code(),
                ardea_core::ErrorCode::InvalidConfig,
                "{error}"
            );
        }
    }
}
