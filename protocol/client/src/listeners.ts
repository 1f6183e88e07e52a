/** Sets of listeners. */

/** A set of listeners. One that throws does not stop the others from being called. */
export class Listeners<A extends readonly unknown[] = []> {
  readonly #all = new Set<(...args: A) => void>();

  /** Adds a listener. Returns the function that removes it. */
  add(listener: (...args: A) => void): () => void {
    // Wrap it, so that the same function can be added twice and each removal removes one.
    const own = (...args: A): void => listener(...args);
    this.#all.add(own);
    return () => void this.#all.delete(own);
  }

  /** The number of listeners. */
  get size(): number {
    return this.#all.size;
  }

  /** Calls all listeners. */
  tell(...args: A): void {
    for (const listener of [...this.#all]) {
      try {
        listener(...args);
      } catch (error) {
        // As with DOM events, the error is the listener's own and goes wherever the environment reports uncaught
        // errors.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
