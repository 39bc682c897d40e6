// Cuts Tabler's style sheet to what pages can use, and bundles the two parts of Bootstrap's script that they use, out of
// the packages that package-lock.json pins; rebuild.py runs it in the folder where they are installed:
//     node tabler.build.mjs OUTPUT-FOLDER PROJECT-FOLDER
// Writes tabler.min.css, bootstrap.min.js, LICENSE with the terms of all that is in them, and left-out.txt: the names of
// Tabler's classes whose rules are not here, so that a test can tell when a page begins to use one.
import { build, transform } from "esbuild";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { PurgeCSS } from "purgecss";
import { about, read, terms } from "./terms.mjs";

const [output, project] = process.argv.slice(2);
const PAGES = { templates: /\.html$/, "static/js": /\.js$/, portal: /^(alert_forms|forms|zone_forms)\.py$/ }; // folder: names
const PARTS = ["collapse", "dropdown"];
const COMPOSED = [
  ...["alert-danger", "alert-info", "alert-success", "alert-warning"], // from the level of a message
  "data-bs-popper", // set by Bootstrap's script on a menu of the navigation bar
];

const words = (text) => text.match(/[A-Za-z0-9_-]+/g) ?? [];
const classes = (css) => new Set([...css.replace(/"[^"]*"/g, "").matchAll(/\.(-?[_a-zA-Z][\w-]*)/g)].map(([, name]) => name));

const files = (folder, names) => {
  const found = readdirSync(join(project, folder), { recursive: true }).filter((file) => names.test(file));
  return found.sort().map((file) => read(project, folder, file));
};
const pages = Object.entries(PAGES).flatMap(([folder, names]) => files(folder, names));
const scripts = PARTS.map((part) => read("node_modules", "bootstrap", "js", "src", `${part}.js`));
const own = files("static/css", /\.css$/);
const used = new Set([...pages, ...scripts, ...COMPOSED].flatMap(words));

const whole = read("node_modules", "@tabler", "core", "dist", "css", "tabler.css");
const [cut] = await new PurgeCSS().purge({
  content: [{ raw: [...used].join(" "), extension: "html" }],
  css: [{ raw: whole }, ...own.map((raw) => ({ raw }))], // a variable that our own sheets name is used too
  defaultExtractor: words,
  variables: true,
  keyframes: true,
  fontFace: true,
});
const { version } = about("@tabler/core");
const { code } = await transform(cut.css, { loader: "css", minify: true, legalComments: "none" });
writeFileSync(join(output, "tabler.min.css"), `/*! tabler v${version}, cut to the rules in use; terms in LICENSE */\n${code}`);
const left = [...classes(whole)].filter((name) => !used.has(name)).sort();
writeFileSync(join(output, "left-out.txt"), left.map((name) => `${name}\n`).join(""));

const { metafile } = await build({
  stdin: { contents: PARTS.map((part) => `import "bootstrap/js/src/${part}.js";`).join("\n"), resolveDir: "." },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2020",
  charset: "utf8",
  legalComments: "none",
  banner: { js: `/*! bootstrap v${about("bootstrap").version} with ${PARTS.join(" and ")} alone; terms in LICENSE */` },
  outfile: join(output, "bootstrap.min.js"),
  metafile: true,
});
const folders = ["@tabler/core", "bootstrap"].map((name) => join("node_modules", name));
writeFileSync(join(output, "LICENSE"), terms(folders, metafile));
