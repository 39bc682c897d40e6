// Builds a Plotly of scatter, bar and heatmap alone, out of the packages that package-lock.json pins; rebuild.py runs it
// in the folder where they are installed:  node plotly.build.mjs OUTPUT-FOLDER
// Writes plotly.min.js and LICENSE with the terms of every package that is in it.
import { build } from "esbuild";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { about, read, terms } from "./terms.mjs";

const [output] = process.argv.slice(2);
const ENTRY = `
  const Plotly = require("plotly.js/lib/core");
  Plotly.register([require("plotly.js/lib/bar"), require("plotly.js/lib/heatmap")]);
  module.exports = Plotly;
`;

const { version } = about("plotly.js");

// The texts of Plotly's reference manual stand in its sources, as strings and as lists that are joined; its own builds
// leave them out too.
const STRING = String.raw`(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")`;
const LIST = String.raw`\[\s*(?:${STRING}\s*,?\s*)*\]\.join\(\s*${STRING}\s*\)`;
const PROSE = new RegExp(String.raw`\bdescription:\s*(?:${LIST}|${STRING})(?=\s*[,}])\s*,?`, "g");
const withoutProse = {
  name: "without-prose",
  setup(build) {
    build.onLoad({ filter: /[\\/]plotly\.js[\\/]src[\\/].*\.js$/ }, ({ path }) => ({
      contents: read(path).replace(PROSE, ""),
    }));
  },
};

const { metafile } = await build({
  stdin: { contents: ENTRY, resolveDir: "." },
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "Plotly",
  target: "es2020",
  charset: "utf8",
  define: { global: "window", "define.amd": "false", "process.env.NODE_ENV": '"production"' },
  legalComments: "none", // their terms are in LICENSE
  banner: { js: `/*! plotly.js v${version} with scatter, bar and heatmap alone; terms in LICENSE */` },
  loader: { ".css": "empty" }, // of maps, which are not in it
  plugins: [withoutProse],
  outfile: join(output, "plotly.min.js"),
  metafile: true,
});

writeFileSync(join(output, "LICENSE"), terms([], metafile));
