// Follows a run in progress: asks the server of the page once per second.
(function () {
  "use strict";
  var id = function (name) { return document.getElementById(name); };
  var upper = function (bucket) { return 1000 * Math.pow(2, bucket / 4); };
  var time = function (ns) {
    var units = [[1e9, " s"], [1e6, " ms"], [1e3, " µs"]];
    for (var i = 0; i < units.length; i++) {
      if (ns >= units[i][0]) { return (ns / units[i][0]).toPrecision(3) + units[i][1]; }
    }
    return Math.round(ns) + " ns";
  };
  var count = function (n) { return n >= 1e6 ? (n / 1e6).toPrecision(3) + "M" : n >= 1e3 ? (n / 1e3).toPrecision(3) + "k" : String(Math.round(n)); };
  var percentile = function (times, share) {
    var all = 0, seen = 0, i;
    for (i = 0; i < times.length; i++) { all += times[i][1]; }
    for (i = 0; i < times.length; i++) {
      seen += times[i][1];
      if (seen >= Math.max(1, Math.ceil(all * share))) { return upper(times[i][0]); }
    }
    return null;
  };
  var line = function (name, values, scale) {
    var way = "", last = Math.max(1, values.length - 1);
    values.forEach(function (value, at) {
      if (value === null) { return; }
      way += (way ? "L" : "M") + (at / last * 100).toFixed(2) + " " + (135 - 130 * scale(value)).toFixed(1);
    });
    id(name).setAttribute("d", way);
  };
  var show = function (live) {
    var left = Math.round(live.seconds_left);
    id("study").textContent = live.study + " · " + live.question;
    id("now").textContent = live.done + " of " + live.trials + " trials, " + (left >= 60 ? Math.floor(left / 60) + " min " : "") + left % 60 + " s left";
    var trial = live.running[0];
    id("trial").textContent = trial ? trial.name + ", " + trial.point : "";
    var told = trial ? trial.intervals.slice(0, -1) : [];
    var rates = told.map(function (one) { return one.ops / Math.max(one.seconds, 1e-9); });
    var most = Math.max.apply(null, rates.concat([1]));
    line("rate", rates, function (value) { return value / most; });
    id("most").textContent = rates.length ? count(most) : "";
    var of = function (share) { return told.map(function (one) { return percentile(one.times, share); }); };
    var slow = of(1), top = Math.log2(Math.max.apply(null, slow.concat([2000])) / 1000);
    var log = function (value) { return Math.max(0, Math.log2(value / 1000) / top); };
    line("p50", of(0.5), log); line("p99", of(0.99), log); line("p100", slow, log);
    id("slowest").textContent = slow.length ? time(1000 * Math.pow(2, top)) : "";
    var last = told[told.length - 1];
    id("words").textContent = live.doing || (last ? count(last.ops / last.seconds) + "/s, mean " + time(last.latency_sum_ns / Math.max(1, last.ops)) + (last.measured ? ", measured" : ", warm-up") : "begins");
    var said = id("said");
    said.textContent = "";
    live.said.slice().reverse().forEach(function (text) {
      var item = document.createElement("li");
      item.textContent = text;
      said.appendChild(item);
    });
  };
  var ask = function () {
    fetch(location.pathname + ".json").then(function (answer) {
      if (!answer.ok) { throw new Error(String(answer.status)); }
      return answer.json().then(function (live) {
        // The run has ended: its page has the rest.
        if (live === null) { location.replace(location.pathname.replace("/live/", "/run/")); return; }
        show(live);
        setTimeout(ask, 1000);
      });
    }).catch(function () { id("words").textContent = "the server does not answer"; setTimeout(ask, 3000); });
  };
  ask();
})();
