//! Generates the reference of study files in docs/STUDY.md from the types that parse them.
//!
//! Invariants: every key, default and word is as in the schema; a table of the schema that is not listed here
//! is an error.

use std::fmt::Write;

use serde_json::Value;

const BEGIN: &str = "<!-- computed: cargo xtask schema -->";
const END: &str = "<!-- end of computed part -->";

/// Tables of a study in the order of the reference: heading, and name of the type.
const TABLES: [(&str, &str); 13] = [
    ("The study", "Study"),
    ("`[[stack]]`", "Stack"),
    ("`limit` of a stack", "IoLimit"),
    ("`[[experiment]]`", "Experiment"),
    ("`[experiment.job]` of the engine `block`", "BlockJob"),
    ("`[experiment.job.precondition]`", "Precondition"),
    ("`[[experiment.job.beside]]`", "Background"),
    ("`rate_step` of block operations", "RateStep"),
    ("`size_mix` of block operations", "SizeWeight"),
    ("`[experiment.job]` of ACT's test", "ActJob"),
    ("`[experiment.job]` of a key-value database", "KvJob"),
    ("`[experiment.job]` of a SQL database", "SqlJob"),
    ("`change` of a SQL job", "SqlChange"),
];

/// Names of scalar types: in the schema, and in the reference.
const SCALARS: [(&str, &str); 13] = [
    ("Jobs", "table"),
    ("Options", "table (below)"),
    ("EngineName", "name of an engine (below)"),
    ("Bytes", "size"),
    ("Nanos", "time"),
    ("Rate", "rate"),
    ("Share", "percent"),
    ("DeviceName", "`file`, `model:...` or a path"),
    ("Memory", "size, percent or `unlimited`, as the meaning says"),
    ("Offsets", "`uniform`, `zipf:S`, `hot-spot:A%/B%`, `gaussian:S%`"),
    ("SqlKeys", "`uniform`, `gaussian`, `special`, `pareto`, `zipf:S`"),
    ("Objective", "limit of a percentile"),
    ("StackFaults", "table"),
];

/// Enums with more words than this are only listed in their own table.
const WORDS_INLINE: usize = 9;

/// The computed part of docs/STUDY.md.
///
/// # Errors
/// Names a table or a type that this module does not know.
pub fn reference(schema: &Value) -> Result<String, String> {
    let definitions = schema["$defs"].as_object().ok_or("the schema defines nothing")?;
    let known = |name: &str| TABLES.iter().any(|(_, own)| *own == name);
    let tables = definitions.iter().filter(|(_, one)| one.get("properties").is_some());
    if let Some((name, _)) = tables.into_iter().find(|(name, _)| !known(name)) {
        return Err(format!("`{name}` has no place among the tables of the reference"));
    }
    let mut out = format!("{BEGIN}\n");
    for (heading, name) in TABLES {
        let table = if name == "Study" { schema } else { &schema["$defs"][name] };
        of_table(&mut out, (heading, table), schema)?;
    }
    words(&mut out, schema);
    list_engines(&mut out);
    let _ = write!(out, "\n{END}");
    Ok(out)
}

/// One table: its description, then its keys, required ones first.
fn of_table(
    out: &mut String,
    (heading, table): (&str, &Value),
    schema: &Value,
) -> Result<(), String> {
    let _ = writeln!(out, "\n### {heading}\n\n{}\n", text(table));
    let _ = writeln!(out, "| key | value | default | meaning |\n|---|---|---|---|");
    let keys = table["properties"].as_object().ok_or_else(|| format!("{heading} has no keys"))?;
    let required = |key: &str| {
        table["required"].as_array().is_some_and(|all| all.iter().any(|one| one == key))
    };
    let (first, rest): (Vec<_>, Vec<_>) = keys.iter().partition(|(key, _)| required(key));
    for (key, one) in first.into_iter().chain(rest) {
        let default = if required(key) { "required".to_owned() } else { default(one) };
        let value = value(one, schema).map_err(|reason| format!("{heading}, `{key}`: {reason}"))?;
        let _ = writeln!(out, "| `{key}` | {value} | {default} | {} |", text(one));
    }
    Ok(())
}

/// Every word of an enum, with its meaning.
fn words(out: &mut String, schema: &Value) {
    let _ = writeln!(out, "\n### Words\n\n| of | word | meaning |\n|---|---|---|");
    for (heading, name) in TABLES {
        let table = if name == "Study" { schema } else { &schema["$defs"][name] };
        for (key, one) in table["properties"].as_object().into_iter().flatten() {
            let mut of = format!("{heading} `{key}`");
            for (word, meaning) in definition(one, schema).map(words_of).unwrap_or_default() {
                let _ = writeln!(out, "| {of} | `{word}` | {meaning} |");
                of.clear();
            }
        }
    }
}

/// Every engine with its options. The skeleton is listed in tests only.
fn list_engines(out: &mut String) {
    let _ = writeln!(
        out,
        "\n### Engines and their options\n\n| engine | operations | needs |\n|---|---|---|"
    );
    let engines = || engines::descriptors().filter(|one| one.name != "skeleton");
    for engine in engines() {
        let operations = match engine.operations {
            study::Operations::Block => "blocks",
            study::Operations::KeyValue => "key-value",
            study::Operations::Sql => "SQL",
        };
        let (name, needs) = (engine.name, engine.needs.unwrap_or("nothing"));
        let _ = writeln!(out, "| `{name}` ({}) | {operations} | {needs} |", engine.title);
    }
    let _ = writeln!(
        out,
        "\nKeys of `[experiment.job.options]`:\n\n| engine | option | value | default | meaning |\n\
         |---|---|---|---|---|"
    );
    for engine in engines() {
        for one in engine.options {
            let list = if one.shown == study::Shown::Never { "" } else { ", or a list" };
            let default = match one.default {
                Some("") => "empty".to_owned(),
                Some(default) => format!("`{default}`"),
                None => "none".to_owned(),
            };
            let (name, allowed, doc) = (one.name, one.kind.allowed(), one.doc);
            let _ = writeln!(
                out,
                "| `{}` | `{name}` | {allowed}{list} | {default} | {doc} |",
                engine.name
            );
        }
    }
}

/// The schema of a key's type, without its list and `null` alternatives.
fn definition<'a>(one: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    let name = named(one)?;
    Some(&schema["$defs"][name])
}

/// Name of the type that a key refers to.
fn named(one: &Value) -> Option<&str> {
    let nested =
        |key: &str| one[key][0].get("$ref").or_else(|| one[key][0]["anyOf"][0].get("$ref"));
    let reference = one.get("$ref").or_else(|| nested("anyOf")).or_else(|| nested("oneOf"));
    reference?.as_str()?.rsplit('/').next()
}

fn words_of(definition: &Value) -> Vec<(&str, String)> {
    let words = definition["oneOf"].as_array().into_iter().flatten();
    words.filter_map(|one| Some((one["const"].as_str()?, text(one)))).collect()
}

/// The allowed values of a key.
fn value(one: &Value, schema: &Value) -> Result<String, String> {
    if let Some(single) = one["oneOf"].get(0).filter(|_| one["oneOf"][1]["type"] == "array") {
        return Ok(format!("{}, or a list", value(single, schema)?));
    }
    let Some(name) = named(one) else {
        let kind = one["type"].as_str().or_else(|| one["type"][0].as_str());
        return match kind {
            Some("integer") => Ok("number".into()),
            Some("boolean") => Ok("`true`, `false`".into()),
            Some("string") => Ok("text".into()),
            Some("array") => Ok(match named(&one["items"]) {
                Some(name) if TABLES.iter().any(|(_, own)| *own == name) => "tables".into(),
                _ => format!("list: {}", value(&one["items"], schema)?),
            }),
            None if one["const"].is_string() => {
                Ok(format!("`{}`", one["const"].as_str().unwrap_or_default()))
            }
            _ => Err("a type that is not known".into()),
        };
    };
    if TABLES.iter().any(|(_, own)| *own == name) {
        return Ok("table".into());
    }
    if let Some((_, word)) = SCALARS.iter().find(|(own, _)| *own == name) {
        return Ok((*word).to_owned());
    }
    let words = words_of(&schema["$defs"][name]);
    match words.len() {
        0 => Err(format!("`{name}` is neither words nor known")),
        few if few <= WORDS_INLINE => {
            Ok(words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", "))
        }
        _ => Ok("a word (below)".into()),
    }
}

fn default(one: &Value) -> String {
    match &one["default"] {
        // A default that is omitted if false.
        Value::Null if one["type"] == "boolean" => "`false`".into(),
        Value::Null => "none".into(),
        Value::String(text) if text.is_empty() => "empty".into(),
        Value::String(text) => format!("`{text}`"),
        Value::Array(all) if all.is_empty() => "empty".into(),
        other => format!("`{other}`"),
    }
}

/// A description as one line of a table.
fn text(one: &Value) -> String {
    let text = one["description"].as_str().unwrap_or_default();
    text.replace('\n', " ").replace('|', "\\|").replace("docs/", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference that omits a key, or has another default than the program, misleads its reader.
    #[test]
    fn every_key_and_word_of_the_schema_stands_in_the_reference() {
        let schema = serde_json::to_value(study::schema()).unwrap();
        let reference = reference(&schema).unwrap();
        // Each table has its own section: a key of one is not a key of another.
        for (heading, name) in TABLES {
            let table = if name == "Study" { &schema } else { &schema["$defs"][name] };
            let part = reference.split(&format!("\n### {heading}\n")).nth(1).unwrap();
            let part = part.split("\n### ").next().unwrap();
            for key in table["properties"].as_object().unwrap().keys() {
                assert!(part.contains(&format!("\n| `{key}` | ")), "{heading}: {key}");
            }
        }
        // The program's defaults.
        let study = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n\
            [[experiment]]\nname = \"e\"\n[experiment.job]\nengine = \"block\"\n";
        let parsed = study::parse(study, engines::list()).unwrap();
        let (one, block) =
            (&parsed.experiment[0], parsed.experiment[0].job.first().block().unwrap());
        for (key, value) in [
            ("optional", one.optional.to_string()),
            ("repeat", one.repeat.to_string()),
            ("batch", block.batch.to_string()),
            ("dsync", "false".to_owned()),
        ] {
            let row = reference.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
            let row = row.unwrap_or_default();
            assert!(row.contains(&format!("| `{value}` |")), "{key}: {row}");
        }
        for word in ["read_while_writing", "ycsb_a", "ext4_no_journal", "engines", "special"] {
            assert!(reference.contains(&format!("`{word}`")), "{word}");
        }
        let unknown = serde_json::json!({ "$defs": { "New": { "properties": {} } } });
        assert!(super::reference(&unknown).unwrap_err().contains("`New`"));
    }
}
