"""Tables that come with the package: four-centre Heart Disease, and Adult. README.md tells sources and terms."""
