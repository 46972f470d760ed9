// Requests of operators for one procedure.
import { get, procedure as at } from "../api.js";
import { empty } from "../trouble.js";
import { activityRows } from "../requests.js";

export const load = async (/** @type {any} */ _app, /** @type {any} */ info, /** @type {AbortSignal} */ signal) => (await get(at(info.id, "/audit?limit=200"), signal)).items;
export const view = (/** @type {any} */ _app, /** @type {any} */ info, /** @type {any[]} */ rows) => (rows.length ? activityRows(rows.map((row) => ({ ...row, id: row.id ?? info.id }))) : empty("No operator asked for anything here."));
