// What the build scripts here share: reading files, and the terms of every package that stands in a bundle.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

export const read = (...path) => readFileSync(join(...path), "utf8");
export const about = (name) => JSON.parse(read("node_modules", name, "package.json"));

const folders = (metafile) => {
  const [{ inputs }] = Object.values(metafile.outputs);
  const found = new Set();
  for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
    const folder = path.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//);
    if (folder && bytesInOutput && !path.endsWith(".css")) found.add(folder[1]);
  }
  return [...found];
};

// The text of a LICENSE file for these folders under node_modules and for what esbuild's metafile says is in its bundle.
export const terms = (more, metafile) => {
  const mit = read("node_modules", "plotly.js", "LICENSE").replace(/^[^]*?(?=Permission is hereby granted)/, "");
  const texts = [...new Set([...more, ...folders(metafile)])].sort().map((folder) => {
    const { name, version, license, author } = JSON.parse(read(folder, "package.json"));
    const files = readdirSync(folder).filter((file) => /^(licen[cs]e|copying)/i.test(file)).sort();
    const found = files.map((file) => read(folder, file).replace(/\r\n/g, "\n").trim());
    if (!found.length && license !== "MIT") throw new Error(`${name} comes without its terms`);
    if (!found.length) found.push(`Copyright (c) ${author?.name ?? author ?? `the authors of ${name}`}\n\n${mit.trim()}`);
    return `${name} ${version} (${license})\n\n${found.join("\n\n")}\n`;
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
};
