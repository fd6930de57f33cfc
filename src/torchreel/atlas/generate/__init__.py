"""Source trees and a reel -> the files of a site: what is read, in which process, and what is written again."""
