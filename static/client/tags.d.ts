/** `<live-board>` for TypeScript: in the document, and in JSX of React. */
import type { Snapshot, State } from "./types/live-board.js";
import type { LiveBoardElement } from "./types/element.js";

export * from "./types/element.js";

/** The attributes of `<live-board>`. */
export interface LiveBoardAttributes {
  src: string;
  limit?: number | string;
  member?: string;
  theme?: "light" | "dark";
  lang?: string;
}

declare global {
  interface HTMLElementTagNameMap {
    "live-board": LiveBoardElement;
  }
  interface HTMLElementEventMap {
    "live-board-change": CustomEvent<Snapshot>;
    "live-board-state": CustomEvent<Readonly<State>>;
  }
}

// @ts-ignore: nothing to extend without the types of React
declare module "react" {
  namespace JSX {
    interface IntrinsicElements {
      // @ts-ignore: nothing to extend without the types of React
      "live-board": import("react").DetailedHTMLProps<import("react").HTMLAttributes<LiveBoardElement>, LiveBoardElement> & LiveBoardAttributes;
    }
  }
}
