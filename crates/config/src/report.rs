//! A report of the settings in force.

use std::fmt;

use serde::Serialize;

use super::value::Value;
use ardea_core::escape_invisible;

/// Every setting with its value and origin, in the order of the schema.
///
/// The report is displayed as a table; `{:#}` adds the allowed values and the trade-off of each
/// setting. It is serialized as a list of objects, one per setting.
///
/// ```
/// use ardea_config::{Kind, Resolver, Schema, Setting};
///
/// static SETTINGS: &[Setting] = &[Setting {
///     key: "threads",
///     kind: Kind::CountOrAuto { least: 1, most: 1024 },
///     default: "auto",
///     about: "cooperative threads",
///     trades: "fewer leave cores to other work",
/// }];
///
/// let schema = Schema::of(SETTINGS);
/// let report = Resolver::new(&schema).flags(["threads=4"]).resolve()?.report();
/// assert_eq!(
///     report.to_string(),
///     "SETTING  VALUE  FROM   WHAT\n\
///      threads  4      --set  cooperative threads\n"
/// );
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Report {
    /// The settings, in the order of the schema.
    pub settings: Vec<ReportedSetting>,
}

/// One setting of a [`Report`].
#[derive(Clone, Debug, Serialize)]
pub struct ReportedSetting {
    /// The key of the setting.
    pub key: &'static str,
    /// The value: a number for a count, a boolean for a flag, else a text.
    pub value: Value,
    /// The origin of the value: `default`, `ardea.toml:3`, `ARDEA_THREADS` or `--set`.
    pub source: String,
    /// The default value.
    pub default: &'static str,
    /// The allowed values, in words.
    pub kind: String,
    /// The environment variable of the setting.
    pub variable: String,
    /// The description of the setting.
    pub about: &'static str,
    /// The benefit and the cost of a higher value.
    pub trades: &'static str,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["SETTING", "VALUE", "FROM"].map(str::to_string);
        let rows: Vec<[String; 3]> = self.settings.iter().map(ReportedSetting::cells).collect();
        let mut widths = [0; 3];
        for row in rows.iter().chain([&header]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        line(f, &header, widths, "WHAT")?;
        for (setting, row) in self.settings.iter().zip(&rows) {
            line(f, row, widths, setting.about)?;
            if f.alternate() {
                writeln!(f, "    {}", setting.trades)?;
                writeln!(
                    f,
                    "    {}; default {}; {}",
                    setting.kind, setting.default, setting.variable
                )?;
            }
        }
        Ok(())
    }
}

impl ReportedSetting {
    /// Returns the cells of the setting's row. Line breaks and other control characters of a value
    /// are escaped, so that the row stays on one line.
    fn cells(&self) -> [String; 3] {
        let value = escape_invisible(&self.value.to_string()).into_owned();
        [self.key.to_string(), value, self.source.clone()]
    }
}

fn line(
    f: &mut fmt::Formatter<'_>,
    cells: &[String; 3],
    widths: [usize; 3],
    about: &str,
) -> fmt::Result {
    for (cell, width) in cells.iter().zip(widths) {
        write!(f, "{cell:width$}  ")?;
    }
    writeln!(f, "{about}")
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Resolver, Schema, Setting};
    use serde_json::json;
    use std::time::Duration;

    static SETTINGS: &[Setting] = &[
        Setting {
            key: "slice",
            kind: Kind::Duration {
                least: Duration::from_micros(1),
                most: Duration::from_secs(1),
            },
            default: "100us",
            about: "a turn of a tasklet",
            trades: "longer costs less",
        },
        Setting {
            key: "name",
            kind: Kind::Text,
            default: "",
            about: "the node's name",
            trades: "none",
        },
    ];

    #[test]
    fn as_data_it_keeps_all_that_is_known_of_a_setting() {
        let schema = Schema::of(SETTINGS);
        let report = Resolver::new(&schema)
            .environment([("ARDEA_SLICE", "0.25ms")])
            .resolve()
            .unwrap()
            .report();
        assert_eq!(
            serde_json::to_value(&report).unwrap()[0],
            json!({
                "key": "slice", "value": "250us", "source": "ARDEA_SLICE", "default": "100us",
                "kind": "a duration from 1us to 1s", "variable": "ARDEA_SLICE",
                "about": "a turn of a tasklet", "trades": "longer costs less",
            })
        );
    }

    #[test]
    fn a_setting_stays_on_its_line_of_the_table() {
        let schema = Schema::of(SETTINGS);
        let resolved = Resolver::new(&schema)
            .flags(["name=a\nb"])
            .resolve()
            .unwrap();
        assert_eq!(
            resolved.report().to_string(),
            "SETTING  VALUE  FROM     WHAT\n\
             slice    100us  default  a turn of a tasklet\n\
             name     a\\nb   --set    the node's name\n"
        );
        let long = format!("{:#}", resolved.report());
        assert!(
            long.contains("    a duration from 1us to 1s; default 100us; ARDEA_SLICE\n"),
            "{long}"
        );
    }
}
