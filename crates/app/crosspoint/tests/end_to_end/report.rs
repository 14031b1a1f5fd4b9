//! The report as a file and in a real browser: self-contained, small, drawn, without errors, on every screen
//! size.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::{Scratch, expect, needs};
use serde_json::{Value, json};

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/runs/v1")
}

fn page(scratch: &Scratch) -> PathBuf {
    let output =
        scratch.crosspoint().arg("report").arg(fixture()).output().expect("the program starts");
    expect(&output, 0);
    scratch.path().join("report.html")
}

/// A report that loads remote resources would not open offline, and would reveal its readers.
#[test]
fn the_page_is_small_and_names_no_address() {
    let scratch = Scratch::new();
    let text = std::fs::read_to_string(page(&scratch)).expect("a page");
    assert!(text.len() < 2 << 20, "{} bytes", text.len());
    // The saved file is an object URL created by the page itself.
    let own = ["createobjecturl(", "revokeobjecturl("];
    let lower = own.iter().fold(text.to_lowercase(), |text, word| text.replace(word, ""));
    for word in ["http:", "https:", "ws:", "wss:", "//cdn", "@import", "url(", "<link", "<iframe"] {
        assert!(!lower.contains(word), "the page contains {word}");
    }
    assert!(lower.contains("default-src 'none'"));
    assert!(!lower.contains(" style=\""), "inline styles would be blocked by our own policy");
    // The text of the first screen must not depend on scripts.
    let body = text.split("<script").next().expect("a body");
    for words in ["What would my database do", "<svg", "measured", "predicted", "latency_p99"] {
        assert!(body.contains(words), "{words}");
    }
}

/// A WebDriver session; the driver ends when dropped.
struct Browser {
    driver: Child,
    session: String,
}

impl Browser {
    fn start(scratch: &Scratch, size: (u32, u32), dark: bool) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut lines = BufReader::new(driver.stdout.take().expect("piped")).lines();
        // "ChromeDriver was started successfully on port 40123."
        let port: u16 = lines
            .find_map(|line| {
                let line = line.ok()?;
                line.split("successfully on port ")
                    .nth(1)?
                    .trim_end_matches('.')
                    .trim()
                    .parse()
                    .ok()
            })
            .expect("chromedriver names its port");
        std::thread::spawn(move || lines.for_each(drop));
        let base = format!("http://127.0.0.1:{port}/session");
        let profile = scratch.path().join(format!("profile-{}-{dark}", size.0));
        let mut arguments = vec!["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"];
        arguments.extend(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
        let place = format!("--user-data-dir={}", profile.display());
        arguments.extend(["--disable-component-update", &place]);
        let options = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let answer = post(&base, &options);
        let id = answer["value"]["sessionId"].as_str().expect("a session").to_owned();
        let browser = Self { driver, session: format!("{base}/{id}") };
        let (width, height) = size;
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600
        });
        browser.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.devtools("Emulation.setEmulatedMedia", &media);
        browser
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        post(&format!("{}/{path}", self.session), body)
    }

    fn devtools(&self, command: &str, parameters: &Value) {
        self.post("goog/cdp/execute", &json!({"cmd": command, "params": parameters}));
    }

    fn script(&self, text: &str) -> Value {
        self.post("execute/sync", &json!({"script": text, "args": []}))["value"].clone()
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        let answer = self.post("se/log", &json!({"type": kind}));
        answer["value"].as_array().cloned().unwrap_or_default()
    }
}

fn post(url: &str, body: &Value) -> Value {
    let patience = Some(std::time::Duration::from_secs(60));
    let request = ureq::post(url).config().timeout_global(patience).build();
    let mut response = request.send_json(body).expect("the driver answers");
    response.body_mut().read_json().expect("the driver speaks JSON")
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = ureq::delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Number of pixels of each canvas, between the axis and the labels on the right, that belong to a line
/// (coloured, or dark). 0 means a blank chart.
const DRAWN: &str = "
    const ratio = devicePixelRatio || 1;
    const right = innerWidth < 640 ? 92 : 150;
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    return [...document.querySelectorAll('canvas')].map((canvas) => {
        const [from, to] = [70 * ratio, canvas.width - (right + 4) * ratio];
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let drawn = 0;
        for (let i = 0; i < data.length; i += 4) {
            const x = (i / 4) % canvas.width;
            if (x < from || x > to || data[i + 3] < 128) continue;
            const rgb = [data[i], data[i+1], data[i+2]];
            const [high, low] = [Math.max(...rgb), Math.min(...rgb)];
            if (high - low > 60 || (dark ? low > 215 : high < 60)) drawn++;
        }
        return drawn;
    });";

/// Text whose contrast with the background is below 4.5 : 1.
const PALE: &str = "
    const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const rgb = (color) => {
        probe.clearRect(0, 0, 1, 1);
        probe.fillStyle = color;
        probe.fillRect(0, 0, 1, 1);
        return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = (color) => {
        const [r, g, b] = rgb(color).map((v) => {
            v /= 255;
            return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const pale = new Set();
    const words = 'h1, h2, h3, p, small, th, td, dd, dt, li, a, button, figcaption, .name, .src, svg text';
    for (const node of document.querySelectorAll(words)) {
        if (!node.textContent.trim() || node.closest('.chip.holds, .inside, [hidden]')) continue;
        const style = getComputedStyle(node);
        const ink = light(node instanceof SVGElement ? style.fill : style.color);
        const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
        if (ratio < 4.5) pale.add(`${node.tagName} ${node.getAttribute('class')} ${ratio.toFixed(2)}`);
    }
    return [...pale];";

/// Sorting, colours, cursor and copying as a user would, by keyboard where possible.
fn the_page_answers(browser: &Browser) {
    let order = "return [...document.querySelectorAll('table.dec tbody')].map((body) => \
         [...body.rows].filter((row) => !row.classList.contains('sub')) \
         .map((row) => Number(row.dataset.keys.split(' ')[1])))";
    browser.script("document.querySelector('[data-sort=\"1\"]').click()");
    let sorted = browser.script(order);
    let bodies = sorted.as_array().expect("bodies");
    assert!(bodies.iter().any(|body| body.as_array().is_some_and(|rows| rows.len() > 2)));
    for body in bodies {
        let ratios: Vec<f64> =
            body.as_array().expect("rows").iter().filter_map(Value::as_f64).collect();
        assert!(ratios.is_sorted_by(|a, b| a >= b), "highest first within a block: {ratios:?}");
    }
    let values = "return [...document.querySelectorAll('#table tbody tr')] \
         .map((row) => Number(row.cells[6].textContent)).filter(Number.isFinite)";
    browser.script("document.querySelector('[data-column=\"6\"]').click()");
    let values = browser.script(values);
    let values: Vec<f64> =
        values.as_array().expect("figures").iter().filter_map(Value::as_f64).collect();
    assert!(values.len() > 10 && values.is_sorted(), "figures by their value");

    let paper = "return getComputedStyle(document.body).backgroundColor";
    for (theme, color) in [("dark", "rgb(20, 23, 26)"), ("light", "rgb(253, 253, 251)")] {
        browser.script(&format!("document.querySelector('[data-theme-choice={theme}]').click()"));
        assert_eq!(browser.script(paper), json!(color));
    }

    browser.script(
        "const box = document.querySelector('.strip-box'); box.focus();
         for (const key of ['ArrowRight', 'ArrowRight', 'End'])
             box.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));",
    );
    let read = browser.script(
        "const box = document.querySelector('.strip-box');
         return [box.parentElement.querySelector('.readout').textContent,
                 box.querySelectorAll('.cursor[visibility=visible]').length]",
    );
    assert!(read[0].as_str().is_some_and(|text| text.contains("p99")), "{read}");
    assert_eq!(read[1], json!(2), "one cursor for both pictures");

    browser.script("document.getElementById('csv').click()");
    // The clipboard is asynchronous; if it is not permitted, a file is saved.
    let copied = (0..100).any(|_| {
        let done = browser.script(
            "return new Promise((done) => setTimeout( \
             () => done(document.documentElement.dataset.copied || ''), 20))",
        );
        done == json!("figures.csv")
    });
    assert!(copied, "the figures were not copied");
    let reached = browser.script(
        "return [...document.querySelectorAll('a[href], button, summary, input, .strip-box')] \
         .every((node) => node.tabIndex >= 0)",
    );
    assert_eq!(reached, json!(true), "a key reaches everything that can be used");
}

#[test]
fn a_browser_draws_it_quietly_on_every_screen() {
    let Some(()) = needs("a_browser_draws_it", &["chromium", "chromedriver"]) else { return };
    let scratch = Scratch::new();
    let page = page(&scratch);
    let url = format!("file://{}", page.display());
    for (width, dark) in [(1400, false), (1400, true), (390, false), (390, true)] {
        let browser = Browser::start(&scratch, (width, 900), dark);
        // Leaves the browser's start page and forgets its requests.
        browser.post("url", &json!({"url": "about:blank"}));
        browser.log("performance");
        browser.post("url", &json!({"url": url}));
        let said: Vec<Value> = browser.log("browser");
        assert!(said.is_empty(), "{width} dark={dark}: the console says {said:?}");

        let charts = browser.script("return Number(document.documentElement.dataset.ready)");
        let charts = charts.as_u64().expect("the script came to its end");
        assert!(charts >= 5, "{charts} charts");
        let drawn = browser.script(DRAWN);
        let drawn = drawn.as_array().expect("canvases");
        assert_eq!(drawn.len() as u64, charts);
        for coloured in drawn {
            assert!(coloured.as_u64().unwrap_or(0) > 50, "{width} dark={dark}: a chart is blank");
        }
        let paper = browser.script("return getComputedStyle(document.body).backgroundColor");
        assert_eq!(paper == json!("rgb(253, 253, 251)"), !dark, "{paper}");
        let pale = browser.script(PALE);
        assert_eq!(pale, json!([]), "{width} dark={dark}: text that is hard to read");
        let wide = browser.script("return document.documentElement.scrollWidth - innerWidth");
        assert!(wide.as_i64().unwrap_or(1) <= 0, "{width}: the page is {wide} px too wide");

        let rows = "return [...document.querySelectorAll('#table tbody tr')].filter(r => !r.hidden).length";
        let all = browser.script(rows).as_u64().expect("rows");
        browser.script(
            "const f = document.getElementById('filter'); f.value = 'lmdb load_time';
             f.dispatchEvent(new Event('input'));",
        );
        let some = browser.script(rows).as_u64().expect("rows");
        assert!(0 < some && some < all, "the filter shows {some} of {all}");
        let address = browser.script("return location.hash");
        assert_eq!(address, json!("#figures?lmdb%20load_time"), "what is seen can be handed on");
        the_page_answers(&browser);

        let requests: Vec<String> = browser
            .log("performance")
            .iter()
            .filter_map(|entry| serde_json::from_str::<Value>(entry["message"].as_str()?).ok())
            .filter(|entry| entry["message"]["method"] == "Network.requestWillBeSent")
            .filter_map(|entry| {
                Some(entry["message"]["params"]["request"]["url"].as_str()?.to_owned())
            })
            .collect();
        let foreign: Vec<_> = requests.iter().filter(|to| !to.starts_with(&url)).collect();
        assert!(!requests.is_empty() && foreign.is_empty(), "requests to {foreign:?}");
    }
}
