//! `ardea components`: the components for topologies in files, with their settings.

use ardea::command_line::Context;
use ardea::components::{COMPONENTS, ComponentInfo};
use ardea::console::Failure;
use ardea_config::nearest;
use serde_json::{Value, json};

use crate::args::ComponentsArgs;
use crate::columns::table;
use crate::stdout;

/// Prints all components, or the named one.
pub fn run(args: &ComponentsArgs, context: &Context) -> Result<(), Failure> {
    let chosen: Vec<&ComponentInfo> = match &args.name {
        Some(name) => vec![find(name)?],
        None => COMPONENTS.iter().collect(),
    };
    if context.json {
        let list = chosen.iter().map(|component| as_json(component));
        return stdout::print_json(&Value::Array(list.collect()));
    }
    let texts: Vec<String> = chosen.iter().map(|component| text(component)).collect();
    stdout::print(&texts.join("\n"))
}

fn find(name: &str) -> Result<&'static ComponentInfo, Failure> {
    let found = COMPONENTS.iter().find(|component| component.name == name);
    found.ok_or_else(|| {
        let names = || COMPONENTS.iter().map(|component| component.name);
        let hint = match nearest(name, names()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("one of {}", names().collect::<Vec<_>>().join(", ")),
        };
        Failure::usage(format!("no component {name:?} comes with ardea"), hint)
    })
}

fn text(component: &ComponentInfo) -> String {
    let ComponentInfo {
        name, kind, about, ..
    } = component;
    let mut text = format!("{name}  ({})  {about}\n", kind.as_str());
    if !component.fields.is_empty() {
        text += &format!("  emits: {}\n", component.fields.join(", "));
    }
    let settings = component.settings.iter().map(|setting| {
        vec![
            format!("  {}", setting.name),
            setting.default.unwrap_or("required").to_string(),
            setting.about.to_string(),
        ]
    });
    let settings: Vec<_> = settings.collect();
    if !settings.is_empty() {
        text += &table(&["  setting", "default", "meaning"], &settings);
    }
    text
}

fn as_json(component: &ComponentInfo) -> Value {
    let settings = component.settings.iter().map(|setting| {
        json!({ "name": setting.name, "default": setting.default, "about": setting.about })
    });
    json!({
        "name": component.name,
        "kind": component.kind.as_str(),
        "about": component.about,
        "fields": component.fields,
        "settings": settings.collect::<Vec<_>>(),
    })
}
