"""What the exports of timelines share: tracks, what is on them, and Kineto's conventions."""
