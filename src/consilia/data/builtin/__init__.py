"""Tables that come with the package: four-centre Heart Disease, and Adult. Terms: README.md."""
