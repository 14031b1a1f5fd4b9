//! Dependencies between the files of a crate are acyclic.
//!
//! A folder with its `mod.rs` counts as one module. Three kinds of dependency are seen: paths that begin with
//! `crate::`, names that the crate's root re-exports, and methods of a type that has `impl` blocks in several
//! files. This is not a parser.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Graph = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace exists")
}

/// The text of each module of a crate, without its tests and comments.
fn rooms(src: &Path) -> BTreeMap<String, String> {
    let mut rooms = BTreeMap::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(src).expect("inside").with_extension("");
                let room = inside.components().next().expect("a name").as_os_str();
                let text = std::fs::read_to_string(&path).expect("a source reads");
                let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
                let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
                let text: String = lines.map(|line| format!("{line}\n")).collect();
                let room: &mut String =
                    rooms.entry(room.to_string_lossy().into_owned()).or_default();
                room.push_str(&text);
            }
        }
    }
    rooms
}

/// The names after a path: one, or those in braces.
fn names(rest: &str) -> Vec<String> {
    let list = match rest.strip_prefix('{') {
        Some(inside) => inside.split('}').next().unwrap_or_default(),
        None => rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default(),
    };
    let words = list.split(',').filter_map(|part| part.trim().split("::").next());
    words.map(|word| word.split(" as ").next().unwrap_or_default().trim().to_owned()).collect()
}

/// The module of each name that the crate root re-exports.
fn handed_on(rooms: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let text = rooms.get("lib").or_else(|| rooms.get("main")).map_or("", String::as_str);
    let mut from = BTreeMap::new();
    for line in text.split("use ").skip(1) {
        if let Some((room, rest)) = line.split_once("::")
            && rooms.contains_key(room)
        {
            names(rest).into_iter().for_each(|name| {
                from.insert(name, room.to_owned());
            });
        }
    }
    from
}

/// The inherent `impl` blocks in a text, as rustfmt writes them: the type, and the lines of the block.
fn impl_blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let is_impl = line.starts_with("impl") && line.ends_with('{') && !line.contains(" for ");
        if !is_impl {
            continue;
        }
        let mut rest = line.trim_start_matches("impl");
        if rest.starts_with('<') {
            let mut depth = 0;
            let end = rest.find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            });
            rest = &rest[end.map_or(0, |end| end + 1)..];
        }
        let name = names(rest.trim_start()).into_iter().next().unwrap_or_default();
        let block: String = lines
            .by_ref()
            .take_while(|line| *line != "}")
            .map(|line| format!("{line}\n"))
            .collect();
        blocks.push((name, block));
    }
    blocks
}

/// Dependencies by methods: a block that calls a method of its own type needs the module that has it.
fn by_methods(rooms: &BTreeMap<String, String>) -> Graph {
    let blocks: Vec<(&String, String, String)> = rooms
        .iter()
        .flat_map(|(room, text)| {
            impl_blocks(text).into_iter().map(move |(of, block)| (room, of, block))
        })
        .collect();
    let mut homes: BTreeMap<(&str, String), BTreeSet<&String>> = BTreeMap::new();
    for (room, of, block) in &blocks {
        for method in block.split("fn ").skip(1).flat_map(names) {
            homes.entry((of, method)).or_default().insert(room);
        }
    }
    let mut graph = Graph::new();
    for (room, of, block) in &blocks {
        for called in block.split("self.").skip(1).flat_map(names) {
            for home in homes.get(&(of.as_str(), called)).into_iter().flatten() {
                if home != room {
                    graph.entry((*room).clone()).or_default().insert((*home).clone());
                }
            }
        }
    }
    graph
}

fn graph(rooms: &BTreeMap<String, String>) -> Graph {
    let from = handed_on(rooms);
    let mut graph = by_methods(rooms);
    for (room, text) in rooms.iter().filter(|(room, _)| !["lib", "main"].contains(&room.as_str())) {
        let needs = text.split("crate::").skip(1).flat_map(names).filter_map(|name| {
            let of = if rooms.contains_key(&name) { Some(&name) } else { from.get(&name) };
            of.filter(|of| *of != room).cloned()
        });
        graph.entry(room.clone()).or_default().extend(needs);
    }
    graph
}

/// A cycle through a module, if there is one.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    fn walk(graph: &Graph, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let here = path.last().expect("a room").clone();
        for next in graph.get(&here).into_iter().flatten() {
            if let Some(at) = path.iter().position(|room| room == next) {
                path.drain(..at);
                return true;
            }
            if !done.contains(next) {
                path.push(next.clone());
                if walk(graph, path, done) {
                    return true;
                }
                path.pop();
            }
        }
        done.insert(here);
        false
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|room| {
        let mut path = vec![room.clone()];
        walk(graph, &mut path, &mut done).then_some(path)
    })
}

/// Files that depend on each other cannot be read, tested or moved alone.
#[test]
fn files_of_a_crate_make_no_circles() {
    let mut looked_at = 0;
    let mut faults = Vec::new();
    for floor in ["model", "live", "app"] {
        let crates = std::fs::read_dir(root().join("crates").join(floor)).expect("a floor");
        for one in crates.flatten().map(|entry| entry.path()).filter(|one| one.join("src").is_dir())
        {
            let graph = graph(&rooms(&one.join("src")));
            looked_at += graph.values().map(BTreeSet::len).sum::<usize>();
            if let Some(rooms) = circle(&graph) {
                faults.push(format!("{}: {}", one.display(), rooms.join(" -> ")));
            }
        }
    }
    assert!(looked_at > 200, "only {looked_at} arrows were found: paths are written otherwise now");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_circle_is_found() {
    let text = |text: &str| text.to_owned();
    let rooms = BTreeMap::from([
        (text("lib"), text("mod a; mod b; pub use b::{B, Other};")),
        (text("a"), text("use crate::{B, Unknown};")),
        (text("b"), text("use crate::a::{self, A};")),
    ]);
    assert_eq!(circle(&graph(&rooms)), Some(vec![text("a"), text("b")]));
    let mut open = rooms;
    open.insert(text("b"), text("struct B;"));
    assert_eq!(circle(&graph(&open)), None);
}

/// Methods of one type in two files that call each other are a cycle, too, although they have no `crate::`
/// paths.
#[test]
fn a_circle_of_methods_is_found() {
    let text = |text: &str| text.to_owned();
    let rooms = |back: &str| {
        BTreeMap::from([
            (
                text("a"),
                text("impl<'a> Run<'a> {\n    fn one(&self) {\n        self.two();\n    }\n}\n"),
            ),
            (
                text("b"),
                format!("impl Run<'_> {{\n    fn two(&self) {{\n        {back}\n    }}\n}}\n"),
            ),
        ])
    };
    assert_eq!(circle(&graph(&rooms("self.one();"))), Some(vec![text("a"), text("b")]));
    assert_eq!(circle(&graph(&rooms("other();"))), None);
}
