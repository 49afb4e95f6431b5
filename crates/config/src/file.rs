//! Settings in the file `ardea.toml`, where nested tables are dotted keys.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::origin::{Assignment, Origin};
use super::schema::Schema;
use super::setting::Kind;
use ardea_core::{Error, ErrorCode, Result};

/// The name of the default file, which is read if it exists.
pub const CONFIG_FILE: &str = "ardea.toml";

/// A value in the file: its position, profile, key and value.
type Entry<'v, 'text> = (usize, Option<String>, String, &'v DeValue<'text>);

/// The largest file size; settings fill a few kilobytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The text of a configuration file, and its name in errors.
///
/// ```
/// use ardea_config::ConfigFile;
///
/// let file = ConfigFile::new("ardea.toml", "threads = 4\n[engine]\nslice = \"100us\"\n");
/// assert_eq!(file.name(), "ardea.toml");
/// ```
#[derive(Clone, Debug)]
pub struct ConfigFile {
    name: Arc<str>,
    text: String,
}

impl ConfigFile {
    /// Creates a file from its text.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<String>) -> Self {
        ConfigFile {
            name: name.into(),
            text: text.into(),
        }
    }

    /// Reads the file at `named`, which must exist, or else [`CONFIG_FILE`] in `directory`, which
    /// may be missing.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ReadFailed`] if the file cannot be read, is not UTF-8 or is larger than 64 KiB.
    pub fn find(named: Option<&Path>, directory: &Path) -> Result<Option<Self>> {
        let fallback = directory.join(CONFIG_FILE);
        let path = named.unwrap_or(&fallback);
        match read_text(path) {
            Ok(text) => Ok(Some(ConfigFile::new(path.display().to_string(), text))),
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let what = format!("cannot read the configuration file {}", path.display());
                Err(Error::new(ErrorCode::ReadFailed, what)
                    .because(error)
                    .hint("check its path and permissions, or name another with --config"))
            }
        }
    }

    /// Reads the file like [`find`](Self::find), and before it [`CONFIG_FILE`] in the user's folder
    /// `of_user`. Returns both files in the order required by
    /// [`Resolver::file`](super::Resolver::file). If `named` is given, reads only that file.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub fn find_all(
        named: Option<&Path>,
        directory: &Path,
        of_user: Option<&Path>,
    ) -> Result<Vec<Self>> {
        let of_user = match (named, of_user) {
            (None, Some(of_user)) => Self::find(None, of_user)?,
            _ => None,
        };
        let here = Self::find(named, directory)?;
        Ok(of_user.into_iter().chain(here).collect())
    }

    /// The name of the file in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the assignments of the file, in the order of its lines.
    pub(super) fn assignments(&self, schema: &Schema) -> Result<Vec<Assignment>> {
        let table = DeTable::parse(&self.text).map_err(|error| self.syntax_error(&error))?;
        let mut entries = Vec::new();
        let mut tables = vec![(None, String::new(), table.get_ref())];
        let profiles = schema.profiles().map(|profiles| profiles.table);
        while let Some((profile, prefix, table)) = tables.pop() {
            for (name, value) in table {
                let key = format!("{prefix}{}", name.get_ref());
                let at = name.span().start;
                match value.get_ref() {
                    DeValue::Table(_) if profile.is_none() && schema.is_other_table(&key) => {}
                    DeValue::Table(all) if profile.is_none() && profiles == Some(key.as_str()) => {
                        for (name, value) in all {
                            match value.get_ref() {
                                DeValue::Table(inner) => {
                                    let name = Some(name.get_ref().to_string());
                                    tables.push((name, String::new(), inner));
                                }
                                scalar => {
                                    let key = format!("{key}.{}", name.get_ref());
                                    entries.push((name.span().start, None, key, scalar));
                                }
                            }
                        }
                    }
                    DeValue::Table(inner)
                        if !inner.is_empty() || profile.is_some() || schema.has_table(&key) =>
                    {
                        tables.push((profile.clone(), format!("{key}."), inner));
                    }
                    scalar => entries.push((at, profile.clone(), key, scalar)),
                }
            }
        }
        entries.sort_unstable_by_key(|(at, ..)| *at);
        self.in_order(schema, entries)
    }

    /// Returns the names of the profiles in the file, including those without settings. Returns an
    /// empty list if the file is not TOML; its settings are rejected elsewhere.
    pub(super) fn profile_names(&self, schema: &Schema) -> Vec<String> {
        let Some(profiles) = schema.profiles() else {
            return Vec::new();
        };
        let Ok(table) = DeTable::parse(&self.text) else {
            return Vec::new();
        };
        let all = table.get_ref().get(profiles.table);
        let all = all.and_then(|all| all.get_ref().as_table());
        let names = all.into_iter().flatten();
        names.map(|(name, _)| name.get_ref().to_string()).collect()
    }

    fn in_order(&self, schema: &Schema, entries: Vec<Entry<'_, '_>>) -> Result<Vec<Assignment>> {
        let mut assignments: Vec<Assignment> = Vec::new();
        for (at, profile, key, value) in entries {
            let origin = Origin::File {
                name: Arc::clone(&self.name),
                line: self.line_of(at),
            };
            let found = match &profile {
                None => schema
                    .find(&key)
                    .ok_or_else(|| schema.unknown_key(&key, &origin)),
                Some(profile) => schema
                    .find_in_profile(&key)
                    .ok_or_else(|| schema.unknown_in_profile(profile, &key, &origin)),
            };
            let setting = found?;
            let is_same =
                |earlier: &&Assignment| earlier.key == setting.key && earlier.profile == profile;
            if let Some(first) = assignments.iter().find(is_same) {
                let what = format!("{key} is set twice, at {} and {origin}", first.origin);
                return Err(Error::new(ErrorCode::InvalidConfig, what).hint("keep one of them"));
            }
            let Some(text) = scalar_text(value) else {
                let what = format!("{key} is set to more than one value at {origin}");
                let mut advice = setting.advice(&origin);
                if setting.kind == Kind::Text {
                    advice = format!("write one text; {advice}");
                }
                return Err(Error::new(ErrorCode::InvalidConfig, what).hint(advice));
            };
            assignments.push(Assignment {
                profile,
                key: setting.key.to_string(),
                text,
                origin,
            });
        }
        Ok(assignments)
    }

    fn syntax_error(&self, error: &toml::de::Error) -> Error {
        let place = match error.span() {
            Some(span) => format!("{}:{}", self.name, self.line_of(span.start)),
            None => self.name.to_string(),
        };
        Error::new(ErrorCode::InvalidConfig, format!("{place} is not TOML"))
            .because(error.message())
            .hint("write settings as in: threads = 4")
    }

    fn line_of(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

/// Reads at most [`MAX_FILE_BYTES`], so that an endless device or pipe is rejected too.
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other("it is larger than 64 KiB"));
    }
    Ok(text)
}

/// Returns a scalar in the form used by the other sources; the kind of the setting validates it.
fn scalar_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        // Hexadecimal and similar numbers become decimal; a number that is too large is rejected
        // later, as written.
        DeValue::Integer(number) => Some(
            i128::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.to_string(), |number| number.to_string()),
        ),
        DeValue::Float(number) => Some(number.as_str().to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::Setting;
    use super::*;
    use std::fs;

    const fn setting(key: &'static str, kind: Kind, default: &'static str) -> Setting {
        Setting {
            key,
            kind,
            default,
            about: "about",
            trades: "trades",
        }
    }

    static SETTINGS: &[Setting] = &[
        setting(
            "threads",
            Kind::Count {
                least: 1,
                most: 999,
            },
            "1",
        ),
        setting("engine.fuse", Kind::Flag, "true"),
        setting("engine.names.first", Kind::Text, ""),
    ];

    fn assigned(text: &str) -> Result<Vec<(String, String, String)>> {
        let file = ConfigFile::new("x.toml", text);
        let assignments = file.assignments(&Schema::of(SETTINGS))?;
        Ok(assignments
            .into_iter()
            .map(|it| (it.key, it.text, it.origin.to_string()))
            .collect())
    }

    fn refused(text: &str) -> String {
        let error = assigned(text).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        error.to_string()
    }

    #[test]
    fn tables_become_dotted_keys_in_the_order_of_the_file() {
        let text = "\u{feff}# ours\r\nengine.fuse = false\r\nthreads = 0x1_0\r\n\n[engine.names]\nfirst = \"a\"\n";
        let expected = [
            ("engine.fuse", "false", "x.toml:2"),
            ("threads", "16", "x.toml:3"),
            ("engine.names.first", "a", "x.toml:6"),
        ];
        let expected = expected.map(|(k, v, o)| (k.to_string(), v.to_string(), o.to_string()));
        assert_eq!(assigned(text).unwrap(), expected);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_even_as_an_empty_table() {
        assert!(refused("\nthread = 1").contains("thread (from x.toml:2); did you mean threads?"));
        assert!(refused("[engin]").contains("no setting engin (from x.toml:1)"));
        assert!(refused("[threads]\nx = 1").contains("no setting threads.x"));
        assert!(refused("engine = 3").contains("no setting engine (from x.toml:1)"));
        assert!(assigned("[engine]\n[engine.names]\n").unwrap().is_empty());
    }

    #[test]
    fn an_array_or_a_table_is_refused_with_an_example() {
        assert_eq!(
            refused("threads = [1, 2]"),
            "ARD-102: threads is set to more than one value at x.toml:1; write a whole number from 1 to 999, for example threads = 1"
        );
    }

    #[test]
    fn several_values_of_a_text_are_to_be_written_as_one() {
        assert_eq!(
            refused("engine.names.first = [\"a\", \"b\"]"),
            "ARD-102: engine.names.first is set to more than one value at x.toml:1; write one text; engine.names.first: about"
        );
    }

    #[test]
    fn a_key_is_not_set_twice_in_two_spellings() {
        let error = refused("engine.fuse = true\n\"engine.fuse\" = false");
        assert!(error.contains("twice, at x.toml:1 and x.toml:2"), "{error}");
    }

    #[test]
    fn what_is_not_toml_is_refused_with_its_line() {
        for text in [
            "threads = 1\nthreads",
            "threads = 1\nthreads = 2",
            "\n[engine",
        ] {
            let error = refused(text);
            assert!(error.contains("x.toml:2 is not TOML: "), "{error}");
        }
    }

    #[test]
    fn deeply_nested_files_are_dealt_with() {
        let dotted = format!("{}a = 1", "a.".repeat(MAX_FILE_BYTES as usize / 2 - 4));
        let inline = format!("a = {}", "{a = ".repeat(MAX_FILE_BYTES as usize / 5 - 4));
        assert!(assigned(&dotted).is_err());
        assert!(assigned(&inline).is_err());
    }

    #[test]
    fn a_named_file_must_exist_and_the_usual_one_need_not() {
        let directory = tempfile::tempdir().unwrap();
        assert!(ConfigFile::find(None, directory.path()).unwrap().is_none());
        let named = directory.path().join("mine.toml");
        let error = ConfigFile::find(Some(&named), directory.path()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ReadFailed);
        assert!(error.to_string().contains("mine.toml"), "{error}");

        fs::write(directory.path().join(CONFIG_FILE), "threads = 2").unwrap();
        let usual = ConfigFile::find(None, directory.path()).unwrap().unwrap();
        assert_eq!(usual.text, "threads = 2");
        fs::write(&named, "threads = 3").unwrap();
        let found = ConfigFile::find(Some(&named), directory.path())
            .unwrap()
            .unwrap();
        assert_eq!(found.text, "threads = 3");
    }

    #[test]
    fn the_users_own_file_comes_first_unless_one_is_named() {
        let [of_user, here] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for (directory, text) in [(&of_user, "threads = 2"), (&here, "threads = 3")] {
            fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
        }
        let texts = |named: Option<&Path>| {
            let files = ConfigFile::find_all(named, here.path(), Some(of_user.path()));
            let texts = files.unwrap().into_iter().map(|file| file.text);
            texts.collect::<Vec<_>>()
        };
        assert_eq!(texts(None), ["threads = 2", "threads = 3"]);
        assert_eq!(texts(Some(&here.path().join(CONFIG_FILE))), ["threads = 3"]);
    }

    #[test]
    fn what_is_no_text_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        for content in [vec![b'#'; MAX_FILE_BYTES as usize + 1], vec![0xff, 0xfe]] {
            fs::write(&path, content).unwrap();
            let error = ConfigFile::find(Some(&path), directory.path()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ReadFailed);
        }
        assert!(ConfigFile::find(Some(directory.path()), directory.path()).is_err());
    }
}
