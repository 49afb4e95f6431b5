//! The schema: all settings of a program.

use super::did_you_mean::nearest;
use super::environment::CONFIG_VARIABLE;
use super::origin::Origin;
use super::setting::Setting;
use ardea_core::{Error, ErrorCode, Result};

/// All settings of a program, in display order.
#[derive(Clone, Debug)]
pub struct Schema {
    settings: Vec<&'static Setting>,
    profiles: Option<Profiles>,
    other_tables: Vec<&'static str>,
}

/// The location of profiles in a file, and the setting that selects one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profiles {
    /// The table that contains one table per profile.
    pub(super) table: &'static str,
    /// The setting whose value is the name of the selected profile.
    pub(super) selected_by: &'static str,
}

impl Schema {
    /// Creates a schema with these settings.
    pub fn of(settings: &'static [Setting]) -> Self {
        Schema {
            settings: settings.iter().collect(),
            profiles: None,
            other_tables: Vec::new(),
        }
    }

    /// Adds these settings.
    pub fn and(mut self, settings: &'static [Setting]) -> Self {
        self.settings.extend(settings);
        self
    }

    /// Adds profiles: each table below `table` in a file is a profile with its own settings. The
    /// setting with the key `chosen_by` names the profile that takes precedence over the rest of
    /// the file.
    ///
    /// In a profile, the settings in the same table as `chosen_by` may be written without the table
    /// name.
    ///
    /// ```
    /// use ardea_config::{ConfigFile, Kind, Resolver, Schema, Setting};
    ///
    /// const fn text(key: &'static str, default: &'static str) -> Setting {
    ///     Setting { key, kind: Kind::Text, default, about: "…", trades: "…" }
    /// }
    ///
    /// static SETTINGS: &[Setting] = &[text("cluster.name", "local"), text("cluster.state", "auto")];
    ///
    /// let schema = Schema::of(SETTINGS).with_profiles("clusters", "cluster.name");
    /// let file = ConfigFile::new("ardea.toml", "[clusters.prod]\nstate = \"etcd://10.0.0.7:2379/prod\"");
    /// let resolved = Resolver::new(&schema).file(Some(file)).flags(["cluster.name=prod"]).resolve()?;
    /// assert_eq!(resolved.text("cluster.state")?, "etcd://10.0.0.7:2379/prod");
    /// assert_eq!(resolved.origin("cluster.state").unwrap().to_string(), "ardea.toml:2");
    /// # Ok::<(), ardea_core::Error>(())
    /// ```
    pub fn with_profiles(mut self, table: &'static str, chosen_by: &'static str) -> Self {
        self.profiles = Some(Profiles {
            table,
            selected_by: chosen_by,
        });
        self
    }

    /// Adds tables with settings of other programs, which read the same files and environment. They
    /// are ignored in files, and so are the variables of their settings. An assignment on the
    /// command line is an error.
    pub fn with_other_tables(mut self, tables: impl IntoIterator<Item = &'static str>) -> Self {
        self.other_tables.extend(tables);
        self
    }

    /// Returns true if the table belongs to other programs.
    pub(super) fn is_other_table(&self, table: &str) -> bool {
        self.other_tables.contains(&table)
    }

    /// Returns true if a variable, without the common prefix, is that of a setting in a table of
    /// other programs.
    pub(super) fn is_other_variable(&self, ending: &str) -> bool {
        let table = ending.split_once('_').map(|(table, _)| table);
        table.is_some_and(|table| self.is_other_table(&table.to_ascii_lowercase()))
    }

    pub(super) fn profiles(&self) -> Option<Profiles> {
        self.profiles
    }

    /// Returns the setting that `key` denotes in a profile; the setting that selects the profile is
    /// excluded.
    pub(super) fn find_in_profile(&self, key: &str) -> Option<&'static Setting> {
        let chosen_by = self.profiles?.selected_by;
        let own = chosen_by
            .rsplit_once('.')
            .and_then(|(table, _)| self.find(&format!("{table}.{key}")));
        own.or_else(|| self.find(key))
            .filter(|setting| setting.key != chosen_by)
    }

    /// Returns the settings in order.
    pub fn settings(&self) -> &[&'static Setting] {
        &self.settings
    }

    /// Returns the setting with this key.
    pub fn find(&self, key: &str) -> Option<&'static Setting> {
        self.settings
            .iter()
            .find(|setting| setting.key == key)
            .copied()
    }

    /// Checks the schema: well-formed keys, no two settings with the same key or variable, no key
    /// that is also a table, valid defaults, and descriptions. A [`Resolver`](super::Resolver) does
    /// this first.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`], because the schema is part of the program.
    pub fn check(&self) -> Result<()> {
        for (index, setting) in self.settings.iter().enumerate() {
            let fault = self.settings[..index]
                .iter()
                .find_map(|other| conflict(setting, other))
                .or_else(|| flaw(setting));
            if let Some(fault) = fault {
                let what = format!("the setting {:?} is declared wrongly", setting.key);
                return Err(Error::new(ErrorCode::Internal, what)
                    .because(fault)
                    .hint("please report this"));
            }
        }
        Ok(())
    }

    /// Returns true if a key is inside the table `key`.
    pub(super) fn has_table(&self, key: &str) -> bool {
        self.settings
            .iter()
            .any(|setting| is_inside(setting.key, key))
    }

    pub(super) fn unknown_key(&self, key: &str, origin: &Origin) -> Error {
        let keys = || self.settings.iter().map(|setting| setting.key);
        let below: Vec<_> = keys().filter(|known| is_inside(known, key)).collect();
        let profiles = self.profiles.map(|profiles| profiles.table);
        let hint = match nearest(key, keys()) {
            _ if profiles == Some(key) => format!("it has a table for each: write [{key}.NAME]"),
            _ if !below.is_empty() => format!("it is a table, of {}", below.join(", ")),
            Some(near) => format!("did you mean {near}?"),
            None => format!("the settings are {}", keys().collect::<Vec<_>>().join(", ")),
        };
        let what = format!("there is no setting {key} (from {origin})");
        Error::new(ErrorCode::InvalidConfig, what).hint(hint)
    }

    /// Returns the error for an unknown `key` in the profile `profile`.
    pub(super) fn unknown_in_profile(&self, profile: &str, key: &str, origin: &Origin) -> Error {
        let Some(Profiles {
            table,
            selected_by: chosen_by,
        }) = self.profiles
        else {
            return self.unknown_key(key, origin);
        };
        let own = chosen_by.rsplit_once('.').map(|(own, _)| own);
        let short =
            |key: &'static str| own.and_then(|own| key.strip_prefix(own)?.strip_prefix('.'));
        if key == chosen_by || short(chosen_by) == Some(key) {
            let what = format!("{key} (from {origin}) is in [{table}.{profile}], whose name it is");
            let hint = format!("leave it out: {chosen_by}={profile} chooses this table");
            return Error::new(ErrorCode::InvalidConfig, what).hint(hint);
        }
        let of_table = self
            .settings
            .iter()
            .filter_map(|setting| short(setting.key));
        match nearest(
            key,
            of_table.filter(|known| short(chosen_by) != Some(known)),
        ) {
            Some(near) => {
                let what = format!("there is no setting {key} (from {origin})");
                Error::new(ErrorCode::InvalidConfig, what).hint(format!("did you mean {near}?"))
            }
            None => self.unknown_key(key, origin),
        }
    }
}

fn is_inside(key: &str, table: &str) -> bool {
    key.strip_prefix(table)
        .is_some_and(|rest| rest.starts_with('.'))
}

fn conflict(setting: &Setting, other: &Setting) -> Option<String> {
    if setting.key == other.key {
        Some("there are two of it".to_string())
    } else if setting.variable() == other.variable() {
        Some(format!("its variable is also the one of {}", other.key))
    } else if is_inside(setting.key, other.key) || is_inside(other.key, setting.key) {
        Some(format!("{} is a table and a value", other.key))
    } else {
        None
    }
}

fn flaw(setting: &Setting) -> Option<String> {
    let good_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    if !setting.key.split('.').all(good_word) {
        Some("a key is words of a-z, 0-9 and _, joined by dots".to_string())
    } else if setting.variable() == CONFIG_VARIABLE {
        Some(format!("{CONFIG_VARIABLE} names the configuration file"))
    } else if setting.about.is_empty() || setting.trades.is_empty() {
        Some("it has no description or no trade-off".to_string())
    } else {
        let error = setting.read(setting.default).err()?;
        Some(format!("its default is wrong: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::Kind;
    use super::*;

    const fn flag(key: &'static str) -> Setting {
        Setting {
            key,
            kind: Kind::Flag,
            default: "true",
            about: "about",
            trades: "trades",
        }
    }

    #[test]
    fn settings_that_get_in_each_others_way_are_found() {
        static DOT: [Setting; 1] = [flag("a.b")];
        static UNDERSCORE: [Setting; 1] = [flag("a_b")];
        static TABLE: [Setting; 1] = [flag("a")];
        for (left, right) in [
            (&DOT, &DOT),
            (&DOT, &UNDERSCORE),
            (&DOT, &TABLE),
            (&TABLE, &DOT),
        ] {
            let error = Schema::of(left).and(right).check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::Internal, "{error}");
        }
        Schema::of(&TABLE).and(&UNDERSCORE).check().unwrap();
    }

    #[test]
    fn a_badly_declared_setting_is_found() {
        static BAD: [Setting; 7] = [
            flag(""),
            flag("a..b"),
            flag("A"),
            flag("a-b"),
            flag("config"),
            Setting {
                about: "",
                ..flag("about")
            },
            Setting {
                default: "perhaps",
                ..flag("default")
            },
        ];
        for setting in BAD.chunks(1) {
            assert!(Schema::of(setting).check().is_err(), "{:?}", setting[0].key);
        }
    }
}
