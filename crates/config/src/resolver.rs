//! Resolution of settings: command line over environment over file over defaults.

use std::ffi::OsString;

use super::did_you_mean::nearest;
use super::environment;
use super::file::ConfigFile;
use super::origin::{Assignment, Flag, Origin};
use super::resolved::{Resolved, ResolvedValue, refused};
use super::schema::Schema;
use ardea_core::{Error, ErrorCode, Result};

/// Collects the assignments to settings and resolves them.
///
/// The order of the calls matters only between two calls of the same method. A flag overrides the
/// environment, which overrides the selected profile of a file, which overrides the rest of the
/// file, which overrides the default.
#[derive(Clone, Debug)]
pub struct Resolver<'a> {
    schema: &'a Schema,
    files: Vec<ConfigFile>,
    variables: Vec<(OsString, OsString)>,
    other_names: Vec<String>,
    flags: Vec<Flag>,
}

impl<'a> Resolver<'a> {
    /// Creates a resolver with all settings of `schema` at their defaults.
    pub fn new(schema: &'a Schema) -> Self {
        Resolver {
            schema,
            files: Vec::new(),
            variables: Vec::new(),
            other_names: Vec::new(),
            flags: Vec::new(),
        }
    }

    /// Adds a configuration file, if any. A later file takes precedence.
    pub fn file(mut self, file: impl IntoIterator<Item = ConfigFile>) -> Self {
        self.files.extend(file);
        self
    }

    /// Adds environment variables, such as [`std::env::vars_os`]. Variables that do not begin with
    /// `ARDEA_` are ignored.
    pub fn environment<N, V>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<OsString>,
        V: Into<OsString>,
    {
        self.variables.extend(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        self
    }

    /// Adds names of variables that begin with `ARDEA_` and are not settings of the program.
    pub fn other_variables<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.other_names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds assignments `key=value` from `--set` or dedicated options. A later assignment to the
    /// same key takes precedence.
    pub fn flags<F: Into<Flag>>(mut self, flags: impl IntoIterator<Item = F>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Resolves every setting.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidConfig`] for the first unknown key or wrong value in file, environment
    /// or flags, even where another source overrides it. [`ErrorCode::Internal`] if the schema
    /// itself is invalid.
    pub fn resolve(&self) -> Result<Resolved> {
        self.schema.check()?;
        let mut settled = Vec::with_capacity(self.schema.settings().len());
        for setting in self.schema.settings() {
            let value = setting
                .read(setting.default)
                .map_err(|why| refused(setting, setting.default, &Origin::Default, why))?;
            settled.push(ResolvedValue {
                setting,
                value,
                origin: Origin::Default,
            });
        }
        let mut written = Vec::new();
        for file in &self.files {
            written.extend(file.assignments(self.schema)?);
        }
        let variables = environment::assignments(self.schema, &self.variables, &self.other_names)?;
        let flags = self.flag_assignments()?;
        let (of_profiles, of_files): (Vec<_>, Vec<_>) = written
            .into_iter()
            .partition(|assignment| assignment.profile.is_some());
        let stronger = variables.into_iter().chain(flags).collect::<Vec<_>>();
        let chosen = self.selected_profile(of_files.iter().chain(&stronger))?;
        self.apply(&mut settled, of_files)?;
        // The settings of other profiles are validated too.
        let (chosen, others): (Vec<_>, Vec<_>) = of_profiles
            .into_iter()
            .partition(|assignment| assignment.profile == chosen);
        self.apply(&mut settled.clone(), others)?;
        self.apply(&mut settled, chosen)?;
        self.apply(&mut settled, stronger)?;
        Ok(Resolved::new(settled))
    }

    /// Returns the selected profile, if any: the value of the last of `assignments` to the setting
    /// that selects a profile.
    fn selected_profile<'s>(
        &self,
        assignments: impl Iterator<Item = &'s Assignment>,
    ) -> Result<Option<String>> {
        let Some(profiles) = self.schema.profiles() else {
            return Ok(None);
        };
        let names: Vec<String> = self
            .files
            .iter()
            .flat_map(|file| file.profile_names(self.schema))
            .collect();
        let is_choice = |assignment: &&Assignment| assignment.key == profiles.selected_by;
        let Some(choice) = assignments.filter(is_choice).last() else {
            // The profile named by the setting's default need not exist in the file.
            let setting = self.schema.find(profiles.selected_by);
            return Ok(setting.map(|setting| setting.default.to_string()));
        };
        let name = choice.text.clone();
        let is_default = self
            .schema
            .find(profiles.selected_by)
            .is_some_and(|setting| setting.default == name);
        if is_default || names.is_empty() || names.contains(&name) {
            return Ok(Some(name));
        }
        let what = format!(
            "{} is {name:?} (from {}), and there is no table [{}.{name}]",
            profiles.selected_by, choice.origin, profiles.table
        );
        let hint = match nearest(&name, names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => {
                let tables = names.iter();
                let tables: Vec<String> = tables
                    .map(|name| format!("[{}.{name}]", profiles.table))
                    .collect();
                let verb = if tables.len() == 1 { "is" } else { "are" };
                format!("there {verb} {}", tables.join(", "))
            }
        };
        Err(Error::new(ErrorCode::InvalidConfig, what).hint(hint))
    }

    fn apply(&self, settled: &mut [ResolvedValue], assignments: Vec<Assignment>) -> Result<()> {
        for assignment in assignments {
            let Assignment {
                key, text, origin, ..
            } = assignment;
            let Some(entry) = settled.iter_mut().find(|entry| entry.setting.key == key) else {
                return Err(self.schema.unknown_key(&key, &origin));
            };
            entry.value = entry
                .setting
                .read(&text)
                .map_err(|why| refused(entry.setting, &text, &origin, why))?;
            entry.origin = origin;
        }
        Ok(())
    }

    fn flag_assignments(&self) -> Result<Vec<Assignment>> {
        let split = |flag: &Flag| match flag.text().split_once('=') {
            Some((key, text)) => Ok(Assignment {
                profile: None,
                key: key.trim().to_string(),
                text: text.to_string(),
                origin: flag.origin(),
            }),
            None => {
                let what = format!("{} {} has no value", flag.origin(), flag.text());
                let hint = match self.schema.find(flag.text().trim()) {
                    Some(setting) => format!("write {}", setting.example(&Origin::Flag)),
                    None => "write --set key=value".to_string(),
                };
                Err(Error::new(ErrorCode::InvalidConfig, what).hint(hint))
            }
        };
        self.flags.iter().map(split).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::{Kind, Setting};
    use super::super::value::Value;
    use super::*;
    use std::time::Duration;

    const fn setting(key: &'static str, kind: Kind, default: &'static str) -> Setting {
        Setting {
            key,
            kind,
            default,
            about: "what it is",
            trades: "more of it costs more",
        }
    }

    static SETTINGS: &[Setting] = &[
        setting("threads", Kind::CountOrAuto { least: 1, most: 64 }, "auto"),
        setting("queue.chunks", Kind::Count { least: 1, most: 99 }, "16"),
        setting(
            "slice",
            Kind::Duration {
                least: Duration::from_micros(1),
                most: Duration::from_secs(1),
            },
            "100us",
        ),
        setting(
            "memory",
            Kind::Bytes {
                least: 1,
                most: 1 << 40,
            },
            "64KiB",
        ),
        setting("pin", Kind::Flag, "true"),
        setting("name", Kind::Text, ""),
        setting(
            "mode",
            Kind::Choice(&["continuous", "micro-batch"]),
            "continuous",
        ),
    ];

    fn resolve(file: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<Resolved> {
        Resolver::new(&Schema::of(SETTINGS))
            .flags(flags.iter().copied())
            .environment(variables.iter().copied())
            .file(Some(ConfigFile::new("ardea.toml", file)))
            .resolve()
    }

    fn refusal(file: &str, variables: &[(&str, &str)], flags: &[&str]) -> String {
        let error = resolve(file, variables, flags).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig, "{error}");
        error.to_string()
    }

    #[test]
    fn the_strongest_source_that_names_a_key_decides_in_every_combination() {
        for sources in 0..8 {
            let (file, variable, flag) = (sources & 1 != 0, sources & 2 != 0, sources & 4 != 0);
            let resolved = resolve(
                if file { "[queue]\nchunks = 1" } else { "" },
                if variable {
                    &[("ARDEA_QUEUE_CHUNKS", "2")]
                } else {
                    &[]
                },
                if flag { &["queue.chunks=3"] } else { &[] },
            )
            .unwrap();
            let (count, origin) = match (file, variable, flag) {
                (_, _, true) => (3, "--set"),
                (_, true, _) => (2, "ARDEA_QUEUE_CHUNKS"),
                (true, _, _) => (1, "ardea.toml:2"),
                _ => (16, "default"),
            };
            assert_eq!(resolved.count("queue.chunks").unwrap(), count);
            assert_eq!(resolved.origin("queue.chunks").unwrap().to_string(), origin);
            assert_eq!(resolved.origin("slice"), Some(&Origin::Default));
        }
    }

    /// Returns the origin and value of `queue.chunks`, with profiles selected by `name`.
    fn chosen(file: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<String> {
        let schema = Schema::of(SETTINGS).with_profiles("profiles", "name");
        let resolved = Resolver::new(&schema)
            .flags(flags.iter().copied())
            .environment(variables.iter().copied())
            .file(Some(ConfigFile::new("ardea.toml", file)))
            .resolve()?;
        let origin = resolved.origin("queue.chunks").unwrap();
        Ok(format!("{} {origin}", resolved.count("queue.chunks")?))
    }

    #[test]
    fn what_an_option_of_its_own_says_is_said_to_come_from_it() {
        let schema = Schema::of(SETTINGS).with_profiles("profiles", "name");
        let file = ConfigFile::new("ardea.toml", "[profiles.prod]\nslice = \"1ms\"");
        let resolver = Resolver::new(&schema).file(Some(file));
        let flag = Flag::of_option("--cluster", "name=prd");
        let error = resolver.flags([flag]).resolve().unwrap_err().to_string();
        assert!(error.contains("\"prd\" (from --cluster)"), "{error}");
    }

    #[test]
    fn the_chosen_profile_counts_before_its_file_and_after_the_environment() {
        let file =
            "queue.chunks = 1\n[profiles.a]\nqueue.chunks = 2\n[profiles.b]\nqueue.chunks = 3";
        for (variables, flags, expected) in [
            (&[][..], &[][..], "1 ardea.toml:1"),
            (&[], &["name=a"], "2 ardea.toml:3"),
            (&[("ARDEA_NAME", "b")], &[], "3 ardea.toml:5"),
            (&[("ARDEA_NAME", "b")], &["name=a"], "2 ardea.toml:3"),
            (
                &[("ARDEA_QUEUE_CHUNKS", "4")],
                &["name=a"],
                "4 ARDEA_QUEUE_CHUNKS",
            ),
            (&[], &["name=a", "queue.chunks=5"], "5 --set"),
        ] {
            assert_eq!(chosen(file, variables, flags).unwrap(), expected);
        }
        assert_eq!(chosen("", &[], &["name=any"]).unwrap(), "16 default");
    }

    #[test]
    fn a_profile_is_checked_whether_it_is_chosen_or_not() {
        for (file, why) in [
            ("[profiles.a]\nqueue.chunks = 0", "ardea.toml:2"),
            (
                "[profiles.a]\nqueue.chunk = 1",
                "did you mean queue.chunks?",
            ),
            (
                "[profiles.a]\nname = \"b\"",
                "name (from ardea.toml:2) is in [profiles.a], whose name it is; leave it out",
            ),
            ("[profiles]\na = 1", "no setting profiles.a"),
            (
                "profiles = 1",
                "no setting profiles (from ardea.toml:1); it has a table for each: write [profiles.NAME]",
            ),
        ] {
            let error = chosen(file, &[], &[]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = chosen("[profiles.prod]\n[profiles.test]", &[], &["name=prd"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ARD-102: name is \"prd\" (from --set), and there is no table [profiles.prd]; did you mean prod?"
        );
    }

    #[test]
    fn the_tables_that_there_are_are_told_as_tables() {
        for (file, told) in [
            ("[profiles.two]", "there is [profiles.two]"),
            (
                "[profiles.a]\n[profiles.b]",
                "there are [profiles.a], [profiles.b]",
            ),
        ] {
            let error = chosen(file, &[], &["name=other"]).unwrap_err();
            assert_eq!(error.hint_text(), Some(told));
        }
    }

    #[test]
    fn in_a_profile_what_was_meant_is_told_as_it_is_written_there() {
        static OF_CLUSTERS: [Setting; 2] = [
            setting("cluster.name", Kind::Text, "local"),
            setting("cluster.state", Kind::Text, "auto"),
        ];
        let schema = Schema::of(&OF_CLUSTERS).with_profiles("clusters", "cluster.name");
        let hint = |file: &str, variables: &[(&str, &str)]| {
            let resolver = Resolver::new(&schema).environment(variables.iter().copied());
            let file = ConfigFile::new("ardea.toml", file);
            let error = resolver.file(Some(file)).resolve().unwrap_err();
            error.hint_text().unwrap_or_default().to_string()
        };
        assert_eq!(
            hint("[clusters.two]\nstat = \"x\"", &[]),
            "did you mean state?"
        );
        for key in ["name", "cluster.name"] {
            assert_eq!(
                hint(&format!("[clusters.two]\n{key} = \"x\""), &[]),
                "leave it out: cluster.name=two chooses this table"
            );
        }
        assert_eq!(
            hint("cluster = \"x\"", &[]),
            "it is a table, of cluster.name, cluster.state"
        );
        let meant = "did you mean ARDEA_CLUSTER_STATE?";
        assert_eq!(hint("", &[("ARDEA_STATE", "x")]), meant);
    }

    #[test]
    fn settings_of_other_programs_are_ignored_unless_they_are_options() {
        let schema = Schema::of(SETTINGS).with_other_tables(["cluster"]);
        let text = "cluster.name = \"a\"\nthreads = 2\n[cluster.more]\nb = 1";
        let resolver = Resolver::new(&schema)
            .file([ConfigFile::new("x.toml", text)])
            .environment([("ARDEA_CLUSTER_STATE", "x")]);
        let resolved = resolver.resolve().unwrap();
        assert_eq!(resolved.count_or_auto("threads").unwrap(), Some(2));
        for variable in ["ARDEA_CLUSTERS", "ARDEA_CLUSTER"] {
            let wrong = resolver.clone().environment([(variable, "x")]);
            assert!(wrong.resolve().is_err(), "{variable}");
        }
        assert!(resolver.flags(["cluster.name=a"]).resolve().is_err());
        let value = Resolver::new(&schema).file([ConfigFile::new("x.toml", "cluster = 1")]);
        assert!(value.resolve().is_err());
    }

    #[test]
    fn of_two_files_the_later_counts() {
        let schema = Schema::of(SETTINGS);
        let files = ["threads = 1\npin = false", "threads = 2"];
        let files = files.map(|text| ConfigFile::new("x.toml", text));
        let resolved = Resolver::new(&schema).file(files).resolve().unwrap();
        assert_eq!(resolved.count_or_auto("threads").unwrap(), Some(2));
        assert!(!resolved.flag("pin").unwrap());
    }

    #[test]
    fn of_two_flags_for_one_key_the_later_counts() {
        let resolved = resolve("", &[], &["pin=off", "pin=on"]).unwrap();
        assert!(resolved.flag("pin").unwrap());
    }

    #[test]
    fn every_kind_is_read_from_every_source() {
        let values = [
            ("threads", "4", Value::Count(4)),
            ("queue.chunks", "1_0", Value::Count(10)),
            (
                "slice",
                "1ms 500us",
                Value::Duration(Duration::from_micros(1500)),
            ),
            ("memory", "2MiB", Value::Bytes(2 << 20)),
            ("pin", "no", Value::Flag(false)),
            ("name", "a=b", Value::Text("a=b".into())),
            ("mode", "micro-batch", Value::Choice("micro-batch")),
        ];
        for (key, text, value) in values {
            let variable = format!("ARDEA_{}", key.to_uppercase().replace('.', "_"));
            for resolved in [
                resolve(&format!("{key} = {text:?}"), &[], &[]),
                resolve("", &[(variable.as_str(), text)], &[]),
                resolve("", &[], &[format!("{key}={text}").as_str()]),
            ] {
                assert_eq!(resolved.unwrap().value(key), Some(&value), "{key}");
            }
        }
    }

    #[test]
    fn numbers_and_booleans_of_the_file_need_no_quotes() {
        let resolved = resolve("threads = 4\npin = false\nmemory = 4096", &[], &[]).unwrap();
        assert_eq!(resolved.count_or_auto("threads").unwrap(), Some(4));
        assert!(!resolved.flag("pin").unwrap());
        assert_eq!(resolved.bytes("memory").unwrap(), 4096);
        assert_eq!(resolved.text("name").unwrap(), "");
        assert_eq!(resolved.choice("mode").unwrap(), "continuous");
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_one() {
        assert_eq!(
            refusal("thread = 1", &[], &[]),
            "ARD-102: there is no setting thread (from ardea.toml:1); did you mean threads?"
        );
        assert_eq!(
            refusal("", &[("ARDEA_SLISE", "1ms")], &[]),
            "ARD-102: there is no setting for the environment variable ARDEA_SLISE; did you mean ARDEA_SLICE?"
        );
        assert_eq!(
            refusal("", &[], &["chunks=1"]),
            "ARD-102: there is no setting chunks (from --set); did you mean queue.chunks?"
        );
        let unlike = refusal("", &[("ARDEA_XYZ", "1")], &[]);
        assert!(
            unlike.contains("; unset it; the variables are ARDEA_THREADS, "),
            "{unlike}"
        );
        let unlike = refusal("", &[], &["colour=red"]);
        assert!(
            unlike.contains("the settings are threads, queue.chunks, "),
            "{unlike}"
        );
    }

    #[test]
    fn a_wrong_value_names_key_value_source_and_a_right_one() {
        assert_eq!(
            refusal("\nslice = 100", &[], &[]),
            "ARD-102: slice cannot be \"100\" (from ardea.toml:2): 100 has no unit: write 100ms for milliseconds, \
             100s for seconds; write a duration from 1us to 1s, for example slice = \"100us\""
        );
        assert_eq!(
            refusal("", &[("ARDEA_THREADS", "0")], &[]),
            "ARD-102: threads cannot be \"0\" (from ARDEA_THREADS): 0 is out of range; \
             write auto or a whole number from 1 to 64, for example ARDEA_THREADS=auto"
        );
        assert_eq!(
            refusal("", &[], &["queue.chunks=many"]),
            "ARD-102: queue.chunks cannot be \"many\" (from --set): \"many\" is no whole number; \
             write a whole number from 1 to 99, for example --set queue.chunks=16"
        );
        assert_eq!(
            refusal("", &[], &["pin"]),
            "ARD-102: --set pin has no value; write --set pin=true"
        );
        // A text may have any form: its description helps more than its default.
        let resolved = resolve("", &[], &["name=a/b"]).unwrap();
        assert_eq!(
            resolved.refuse("name", "it has a slash").to_string(),
            "ARD-102: name cannot be \"a/b\" (from --set): it has a slash; name: what it is"
        );
    }

    #[test]
    fn a_wrong_value_is_refused_even_where_it_is_overridden() {
        let error = refusal("pin = \"perhaps\"", &[("ARDEA_PIN", "on")], &["pin=on"]);
        assert!(error.contains("ardea.toml:1"), "{error}");
    }

    #[test]
    fn variables_that_are_no_settings_are_let_pass_only_when_known() {
        let foreign = [
            ("HOME", "/"),
            ("ardea_pin", "x"),
            ("ARDEA_CONFIG", "my.toml"),
        ];
        let service = [
            ("ARDEA_SERVICE_HOST", "::1"),
            ("ARDEA_PORT", "tcp://[::1]:1"),
        ];
        resolve("", &foreign, &[]).unwrap();
        resolve("", &service, &[]).unwrap();
        let error = refusal("", &[("ARDEA_TOKEN", "x")], &[]);
        assert!(error.contains("ARDEA_TOKEN"), "{error}");
        Resolver::new(&Schema::of(SETTINGS))
            .environment([("ARDEA_TOKEN", "x")])
            .other_variables(["ARDEA_TOKEN"])
            .resolve()
            .unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_utf8_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let error = Resolver::new(&Schema::of(SETTINGS))
            .environment([("ARDEA_NAME", OsString::from_vec(vec![0xff]))])
            .resolve()
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(
            error.to_string().contains("ARDEA_NAME is not UTF-8"),
            "{error}"
        );
    }

    #[test]
    fn asking_for_another_kind_or_key_is_an_error_of_ours() {
        let resolved = Resolved::defaults(&Schema::of(SETTINGS)).unwrap();
        for error in [
            resolved.count("pin").unwrap_err(),
            resolved.count("threads").unwrap_err(),
            resolved.text("colour").unwrap_err(),
        ] {
            assert_eq!(error.code(), ErrorCode::Internal, "{error}");
        }
    }
}
