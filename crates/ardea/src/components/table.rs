//! A table of the components and their settings, for display. Tests compare it with the components.

/// The kind of a component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ComponentKind {
    /// A spout emits tuples by itself.
    Spout,
    /// A bolt processes tuples.
    Bolt,
}

impl ComponentKind {
    /// Returns the kind's name for display.
    pub const fn as_str(self) -> &'static str {
        match self {
            ComponentKind::Spout => "spout",
            ComponentKind::Bolt => "bolt",
        }
    }
}

/// A component that comes with Ardea.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ComponentInfo {
    /// The component's name in topology files.
    pub name: &'static str,
    /// The component's kind.
    pub kind: ComponentKind,
    /// A description of its behaviour.
    pub about: &'static str,
    /// The fields of the tuples that it emits; empty if it emits nothing.
    pub fields: &'static [&'static str],
    /// The component's settings.
    pub settings: &'static [SettingInfo],
}

/// A setting of a component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettingInfo {
    /// The setting's name.
    pub name: &'static str,
    /// The setting's default; `None` if the setting is required.
    pub default: Option<&'static str>,
    /// A description of its meaning.
    pub about: &'static str,
}

const fn setting(
    name: &'static str,
    default: Option<&'static str>,
    about: &'static str,
) -> SettingInfo {
    SettingInfo {
        name,
        default,
        about,
    }
}

/// All components that come with Ardea, spouts first.
pub static COMPONENTS: &[ComponentInfo] = &[
    ComponentInfo {
        name: "lines",
        kind: ComponentKind::Spout,
        about: "emits the lines of a file, or of the files of a directory; several instances divide the files",
        fields: &["line"],
        settings: &[
            setting(
                "file",
                None,
                "the path of the file or directory, on the machine of the instance; a file shipped with `--file` is found by its name",
            ),
            setting(
                "repeat",
                Some("false"),
                "whether to start again from the beginning after the end",
            ),
            setting(
                "on_damage",
                Some("fail"),
                "reaction to a file that can't be read to its end: `fail`, or `keep` the lines before the damage",
            ),
        ],
    },
    ComponentInfo {
        name: "words",
        kind: ComponentKind::Spout,
        about: "emits random words",
        fields: &["word"],
        settings: &[
            setting(
                "rate",
                Some("no limit"),
                "words per second and instance, a number greater than zero",
            ),
            setting(
                "total",
                Some("no end"),
                "how many words each instance emits before it ends",
            ),
            setting(
                "vocabulary",
                Some("1000"),
                "how many different words there are, at least one",
            ),
            setting(
                "seed",
                Some("1"),
                "the same seed and instance give the same words",
            ),
        ],
    },
    ComponentInfo {
        name: "count",
        kind: ComponentKind::Bolt,
        about: "counts words; emits the counts that have changed, at regular intervals and at the end",
        fields: &["word", "count"],
        settings: &[
            setting("field", Some("word"), "the field with the word"),
            setting(
                "every",
                Some("1s"),
                "interval at which changed counts are emitted, a duration greater than zero",
            ),
        ],
    },
    ComponentInfo {
        name: "print",
        kind: ComponentKind::Bolt,
        about: "prints tuples on standard output, a line each; on a cluster `ardea logs` shows them",
        fields: &[],
        settings: &[],
    },
    ComponentInfo {
        name: "split",
        kind: ComponentKind::Bolt,
        about: "emits the words of a text in lower case: letters and digits of any script",
        fields: &["word"],
        settings: &[setting("field", Some("line"), "the field with the text")],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::builtin;

    /// Returns the error for a topology of `component` with `settings`, if any.
    fn fault(component: &ComponentInfo, settings: &str) -> Option<String> {
        let name = component.name;
        let yaml = match component.kind {
            ComponentKind::Spout => format!(
                "{{name: t, spouts: [{{ name: it, component: {name}, settings: {settings} }}],
                  bolts: [{{ name: out, component: print, inputs: [{{ from: it, grouping: shuffle }}] }}]}}"
            ),
            ComponentKind::Bolt => format!(
                "{{name: t, spouts: [{{ name: s, component: words }}],
                  bolts: [{{ name: it, component: {name}, settings: {settings}, inputs: [{{ from: s, grouping: shuffle }}] }}]}}"
            ),
        };
        let built = builtin().topology(&yaml);
        built.err().map(|error| error.to_string())
    }

    #[test]
    fn the_table_has_all_components() {
        let named = |kind| {
            let of_kind = COMPONENTS.iter().filter(|one| one.kind == kind);
            of_kind.map(|one| one.name).collect::<Vec<_>>()
        };
        let registered = format!("{:?}", builtin());
        for (key, kind) in [
            ("spouts", ComponentKind::Spout),
            ("bolts", ComponentKind::Bolt),
        ] {
            let told = format!("{key}: {:?}", named(kind));
            assert!(registered.contains(&told), "{registered}\n{told}");
        }
    }

    #[test]
    fn the_table_has_all_settings_of_each_component() {
        for component in COMPONENTS {
            let told = fault(component, "{ no-such-setting: 1 }").unwrap();
            // The error lists the expected names in backticks after the unknown one.
            let expected = told.split('`').skip(3).step_by(2);
            let mut expected: Vec<&str> = expected.collect();
            let mut known: Vec<&str> = component.settings.iter().map(|it| it.name).collect();
            expected.sort_unstable();
            known.sort_unstable();
            assert_eq!(known, expected, "{}: {told}", component.name);
        }
    }

    #[test]
    fn what_has_no_default_has_to_be_said_and_nothing_else() {
        for component in COMPONENTS {
            let must = component.settings.iter().filter(|it| it.default.is_none());
            let must: Vec<&str> = must.map(|it| it.name).collect();
            let lacks = fault(component, "{}");
            assert_eq!(lacks.is_some(), !must.is_empty(), "{lacks:?}");
            let said: Vec<String> = must.iter().map(|name| format!("{name}: x")).collect();
            assert_eq!(
                fault(component, &format!("{{ {} }}", said.join(", "))),
                None
            );
        }
    }

    #[test]
    fn defaults_that_are_values_are_taken_as_they_stand_in_the_table() {
        for component in COMPONENTS {
            for setting in component.settings {
                let value = setting.default.filter(|value| !value.contains(' '));
                let file = match component.name {
                    "lines" => "file: x, ",
                    _ => "",
                };
                let settings = value.map(|value| format!("{{ {file}{}: {value} }}", setting.name));
                assert_eq!(
                    settings.and_then(|settings| fault(component, &settings)),
                    None
                );
            }
        }
    }

    #[test]
    fn the_guide_has_the_table() {
        let guide = include_str!("../../../../docs/topologies.md");
        for component in COMPONENTS {
            let fields = match component.fields {
                [] => "nothing".to_string(),
                fields => format!("`{}`", fields.join("`, `")),
            };
            let row = format!(
                "| `{}` | {} | {} | {fields} |",
                component.name,
                component.kind.as_str(),
                component.about
            );
            assert!(guide.contains(&row), "{row}");
            for setting in component.settings {
                let default = match setting.default {
                    Some(value) if value.contains(' ') => value.to_string(),
                    Some(value) => format!("`{value}`"),
                    None => "required".to_string(),
                };
                let row = format!(
                    "| `{}` | `{}` | {default} | {} |",
                    component.name, setting.name, setting.about
                );
                assert!(guide.contains(&row), "{row}");
            }
        }
    }
}
