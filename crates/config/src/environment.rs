//! Settings in environment variables: `ARDEA_THREADS=4`.

use std::ffi::OsString;

use super::did_you_mean::nearest;
use super::origin::{Assignment, Origin};
use super::schema::Schema;
use super::setting::Setting;
use ardea_core::{Error, ErrorCode, Result};

/// The prefix of the variables of all settings.
pub(super) const PREFIX: &str = "ARDEA_";

/// The variable with the path of the configuration file, overridden by `--config`. It is not a
/// setting.
pub const CONFIG_VARIABLE: &str = "ARDEA_CONFIG";

/// Returns the assignments of `variables` to settings of `schema`. Ignores the variables named in
/// `others`, which have another meaning in the program.
pub(super) fn assignments(
    schema: &Schema,
    variables: &[(OsString, OsString)],
    others: &[String],
) -> Result<Vec<Assignment>> {
    let mut found = Vec::new();
    for (name, value) in variables {
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX)
            || name == CONFIG_VARIABLE
            || others.iter().any(|other| *other == name)
        {
            continue;
        }
        let known = schema
            .settings()
            .iter()
            .find(|setting| setting.variable() == name);
        let Some(setting) = known else {
            let ending = name.strip_prefix(PREFIX).unwrap_or_default();
            if schema.is_other_variable(ending) || is_service_link(&name, &value.to_string_lossy())
            {
                continue;
            }
            return Err(unknown_variable(schema, &name));
        };
        let Some(text) = value.to_str() else {
            let what = format!("the value of {name} is not UTF-8");
            let advice = setting.advice(&Origin::Variable(name.into_owned()));
            return Err(Error::new(ErrorCode::InvalidConfig, what).hint(advice));
        };
        found.push(Assignment {
            profile: None,
            key: setting.key.to_string(),
            text: text.to_string(),
            origin: Origin::Variable(name.into_owned()),
        });
    }
    Ok(found)
}

fn unknown_variable(schema: &Schema, name: &str) -> Error {
    // Compared without the common prefix, which would make any two names similar.
    let variables: Vec<String> = schema
        .settings()
        .iter()
        .map(|setting| setting.variable())
        .collect();
    let endings = variables
        .iter()
        .map(|variable| variable.strip_prefix(PREFIX).unwrap_or(variable));
    let ending = name.strip_prefix(PREFIX).unwrap_or(name);
    let near = nearest(ending, endings).map(|near| format!("{PREFIX}{near}"));
    // The user may have left out the table of the setting.
    let without_table = || {
        let last = |setting: &Setting| setting.key.rsplit('.').next().unwrap_or_default();
        let settings = schema.settings().iter();
        let meant = nearest(ending, settings.map(|setting| last(setting)))?;
        let mut settings = schema.settings().iter();
        Some(settings.find(|setting| last(setting) == meant)?.variable())
    };
    let hint = match near.or_else(without_table) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("unset it; the variables are {}", variables.join(", ")),
    };
    let what = format!("there is no setting for the environment variable {name}");
    Error::new(ErrorCode::InvalidConfig, what).hint(hint)
}

/// Returns true if Kubernetes sets this variable for a service. For a service named `ardea`, the
/// variables are `ARDEA_SERVICE_HOST`, `ARDEA_SERVICE_PORT…`, `ARDEA_PORT` and
/// `ARDEA_PORT_80_TCP…`. Users cannot remove such variables, so they are ignored.
fn is_service_link(name: &str, value: &str) -> bool {
    let numbered_port = name.match_indices("_PORT_").any(|(at, infix)| {
        let rest = &name[at + infix.len()..];
        let protocol = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        protocol.len() < rest.len()
            && ["_TCP", "_UDP", "_SCTP"]
                .iter()
                .any(|known| protocol.starts_with(known))
    });
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || numbered_port
        || (name.ends_with("_PORT") && value.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_kubernetes_services_are_told_from_settings() {
        for (name, value) in [
            ("ARDEA_SERVICE_HOST", "10.0.0.1"),
            ("ARDEA_SERVICE_PORT", "80"),
            ("ARDEA_UI_SERVICE_PORT_HTTP", "80"),
            ("ARDEA_PORT", "tcp://10.0.0.1:80"),
            ("ARDEA_PORT_80_TCP", "tcp://10.0.0.1:80"),
            ("ARDEA_PORT_80_TCP_ADDR", "10.0.0.1"),
        ] {
            assert!(is_service_link(name, value), "{name}");
        }
        for (name, value) in [
            ("ARDEA_PORT", "80"),
            ("ARDEA_PORT_X", "80"),
            ("ARDEA_THREADS", "4"),
        ] {
            assert!(!is_service_link(name, value), "{name}");
        }
    }
}
